"""Models whose plans are built, run and measured.  `CASES` holds them by name."""

from tests.models.planned import constructs, networks
from tests.models.planned.call import Call, calls, difference, needed
from tests.models.planned.case import CASES, Case
from tests.models.planned.compare import Row, compare, within_limit
from tests.models.planned.sized import imported_case, ordinary_case
from tests.models.planned.variants import Kind, Variants

__all__ = [
    "CASES",
    "Call",
    "Case",
    "Kind",
    "Row",
    "Variants",
    "calls",
    "compare",
    "constructs",
    "difference",
    "imported_case",
    "needed",
    "networks",
    "ordinary_case",
    "within_limit",
]
