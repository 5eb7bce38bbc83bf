"""The peak of a call as text: the tensors that make it, and the one to get rid of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symalloc.planner.memory_report.call_peak import CallPeak, PeakTensor
from symalloc.planner.memory_report.function_report import FunctionReport
from symalloc.planner.memory_report.non_arena import KernelWorkspaceUse
from symalloc.report.quantities import columns, cut_place, human_bytes
from symalloc.size.evaluation import highest

MOST_ROWS = 12  # tensors; all of them are in the JSON
WIDEST_CELL = 40


def peak_lines(report: FunctionReport) -> Iterator[str]:
    """Yield what makes the peak at each of the samples that somebody asked for."""
    for sample in report.samples if report.asked else ():
        if sample.peak is not None and sample.peak.tensors:
            yield from _peak(sample.peak, sample.binding, report.outside.kernels)


def _peak(
    peak: CallPeak, binding: Mapping[str, int], kernels: tuple[KernelWorkspaceUse, ...]
) -> Iterator[str]:
    at = ", ".join(f"{name} = {value}" for name, value in binding.items())
    where = f" at {at}" if at else ""
    runs = f", in call {peak.step} of {peak.steps}, `{peak.operator}`" if peak.operator else ""
    yield f"  peak{where}: {human_bytes(peak.nbytes)} of tensors{runs}"
    rows = [(_named(t), human_bytes(t.nbytes), _until(t), _source(t)) for t in peak.tensors[:MOST_ROWS]]
    sourced = any(source for *_, source in rows)
    table = [("tensor", "bytes", "held until", "from" if sourced else ""), *rows]
    heading, *lines = columns(table, left=(0, 2, 3))
    yield f"    {heading}"
    yield from (f"    {line}" for line in lines)
    if len(peak.tensors) > MOST_ROWS:
        rest = peak.tensors[MOST_ROWS:]
        yield f"    … and {len(rest)} more, {human_bytes(sum(t.nbytes for t in rest))}"
    sizes = [use.scratch.peak for use in kernels if use.kernel == peak.operator]
    workspace = highest(sizes, binding) if sizes else None
    if workspace:
        yield f"    `{peak.operator}` takes {human_bytes(workspace)} of workspace besides"
    yield f"    {_remedy(peak)}"


def _named(tensor: PeakTensor) -> str:
    origin = str(tensor.origin)
    text = f"{tensor.name} ({origin})" if origin else tensor.name
    return text if len(text) <= WIDEST_CELL else f"{text[: WIDEST_CELL - 1]}…"


def _source(tensor: PeakTensor) -> str:
    return cut_place(tensor.origin.source)


def _until(tensor: PeakTensor) -> str:
    if tensor.kind == "result":
        return "the end: it is returned"
    return f"{tensor.until}, idle here" if tensor.idle and tensor.until else tensor.until


def _remedy(peak: CallPeak) -> str:
    """Say what would lower the peak."""
    found = peak.remedy
    if found is None:
        return "to lower it, several tensors must go: another moment holds as much without any one of them"
    left = f"without {_named(found)} it is {human_bytes(peak.without)}"
    if found.kind == "result":
        return f"{left}: let the caller donate an input to this result (--alias)"
    if found.idle:
        return f"{left}: it waits for `{found.until}`" if found.until else f"{left}: nothing reads it"
    return f"{left}: `{peak.operator}` itself touches it, so only a smaller or split operator helps"
