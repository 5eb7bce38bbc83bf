"""Models whose plans are built, run and measured.  `CASES` holds them by name."""

from models.planned import branching, constructs, control, networks
from models.planned.case import CASES, Case
from models.planned.compare import Row, compare
from models.planned.variants import Variants

__all__ = ["CASES", "Case", "Row", "Variants", "branching", "compare", "constructs", "control", "networks"]
