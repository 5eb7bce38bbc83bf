"""Models whose plans are built, run and measured.  `CASES` holds them by name."""

from tests.models.planned import branching, constructs, control, networks
from tests.models.planned.case import CASES, Case
from tests.models.planned.compare import Row, compare
from tests.models.planned.variants import Variants

__all__ = ["CASES", "Case", "Row", "Variants", "branching", "compare", "constructs", "control", "networks"]
