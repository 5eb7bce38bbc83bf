# The public names, once: type checkers read them here, and `symalloc.__getattr__` imports them from there.

from symalloc import pool as pool
from symalloc.errors import RunError as RunError
from symalloc.errors import SymallocError as SymallocError
from symalloc.errors import UsageError as UsageError
from symalloc.linter.diagnostic import Diagnostic as Diagnostic
from symalloc.linter.diagnostic import Fix as Fix
from symalloc.linter.diagnostic import Report as Report
from symalloc.linter.diagnostic import Severity as Severity
from symalloc.native.library import NativeMissingError as NativeMissingError
from symalloc.native.library import cmake_dir as cmake_dir
from symalloc.pipelines import pipeline as pipeline
from symalloc.pipelines import replace_tvm_planner as replace_tvm_planner
from symalloc.planner.check.validate import PlanRefusedError as PlanRefusedError
from symalloc.planner.plan_diff.compare_plans import PlanDiff as PlanDiff
from symalloc.pool.exports import prometheus_text as prometheus_text
from symalloc.pool.instrumented_pool import LeakWarning as LeakWarning
from symalloc.pool.instrumented_pool import Pool as Pool
from symalloc.pool.pool_errors import BadFreeError as BadFreeError
from symalloc.pool.pool_errors import BoundsError as BoundsError
from symalloc.pool.pool_errors import OutOfMemoryError as OutOfMemoryError
from symalloc.pool.pool_errors import OverrunError as OverrunError
from symalloc.pool.pool_errors import PoolError as PoolError
from symalloc.pool.pool_errors import PoolUsageError as PoolUsageError
from symalloc.pool.pool_options import PoolOptions as PoolOptions
from symalloc.prover.verdict import Proof as Proof
from symalloc.prover.verdict import Verdict as Verdict
from symalloc.relax.passes.name_tensors import NameTensors as NameTensors
from symalloc.relax.passes.plan_pass import DeviceMemoryError as DeviceMemoryError
from symalloc.relax.passes.plan_pass import PlanMemory as PlanMemory
from symalloc.relax.passes.stages import VerificationError as VerificationError
from symalloc.relax.passes.stages import VerificationWarning as VerificationWarning
from symalloc.relax.run.memory_cfg import HookError as HookError
from symalloc.relax.run.memory_cfg import memory_cfg as memory_cfg
from symalloc.report.pool_use import pool_report as pool_report
from symalloc.session.api import assert_memory_safe as assert_memory_safe
from symalloc.session.api import diff as diff
from symalloc.session.api import lint as lint
from symalloc.session.api import plan as plan
from symalloc.session.api import prove as prove
from symalloc.session.api import run as run
from symalloc.session.api import save_program as save_program
from symalloc.session.linting import VerifyMemory as VerifyMemory
from symalloc.session.planning import pack as pack
from symalloc.size.sympy_terms import symbols as symbols

__version__: str
