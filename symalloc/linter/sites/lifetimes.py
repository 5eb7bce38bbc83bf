"""Sites of lifetimes, and what cannot be verified: who holds memory for how long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from symalloc.analysis.call_expansion import LeftCall
from symalloc.analysis.conflicts import Access
from symalloc.analysis.kernels.uninitialized import gap_between
from symalloc.analysis.misuses import out_of_scope, used_variables, uses_after_kill
from symalloc.analysis.regions import Region, RegionKind, Target
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members, region_set
from symalloc.linter.sites.site import (
    FunctionContext,
    Site,
    alias_at,
    caller_name,
    function_sites,
    name_of,
    not_understood,
    places_of,
)
from symalloc.linter.sites.storages import storages_of
from symalloc.program import ir
from symalloc.program.control_flow import PointKind
from symalloc.program.operands import expressions_of
from symalloc.size.condition import gt

_DEEP = "in calls of itself further down"


@function_sites("construct", expanded=True)
def calls_not_followed(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The calls not written out that write on storages in a way that none of those written out shows.

    They are given one storage twice, or one of a size that those around them were not given.
    """
    expansion = context.expansion
    for point, made in context.analysis.cfg.instructions if expansion is not None and expansion.left else ():
        if isinstance(made, ir.AllocTensor):
            yield from ((point, site) for site in _unknown_storages(context, made))
        elif expansion is not None and made.var in expansion.left:
            yield from ((point, site) for site in _written_storages(context, expansion.left[made.var]))


def _written_storages(context: FunctionContext, left: LeftCall) -> Iterator[Site]:
    """The sites of one call."""
    call, given = left.call, _storages(context, left.call, left.call.arguments)
    around = _storages(context, call, left.repeated) if left.repeated else ()
    summary = context.shared.summaries[call.name]
    for number, storages in enumerate(given):
        if not contains(summary.writes | summary.may_writes, number):
            continue
        others = NO_REGIONS
        for other in (*given[:number], *given[number + 1 :]):
            others |= other
        sized = region_set(n for n in members(storages) if context.points_to.regions[n].nbytes is not None)
        if storages & others:
            what = f"what `{call.name}` writes on {_names(context, storages & others)}, given twice"
            yield not_understood(what)
        elif sized and not (around and storages == around[number]):
            what = f"whether what `{call.name}` places on {_names(context, storages)} fits, {_DEEP}"
            yield not_understood(what)


def _storages(
    context: FunctionContext, call: ir.CallFunction, arguments: Sequence[ir.Operand]
) -> Sequence[RegionSet]:
    """The storages behind each leaf of the arguments."""
    points_to, callee = context.points_to, context.program.functions[call.name]
    leaves = (leaf for _, leaf in points_to.argument_leaves(arguments, callee))
    return [points_to.resolve(leaf.must | leaf.may) & points_to.storages for leaf in leaves]


def _names(context: FunctionContext, storages: RegionSet) -> str:
    names = (context.points_to.regions[number].name for number in members(storages))
    return " or ".join(f"`{name}`" for name in dict.fromkeys(names))


def _unknown_storages(context: FunctionContext, alloc: ir.AllocTensor) -> Iterator[Site]:
    """The sites of a tensor on a storage that comes out of a call which is not written out."""
    assert context.expansion is not None
    for storage in storages_of(context, alloc):
        made = storage.instruction
        if storage.nbytes is None and made is not None and made.var in context.expansion.left:
            maker = f"`{made.name}`" if isinstance(made, ir.CallFunction) else "a call"
            what = f"whether `{alloc.var.name}` fits the storage that {maker} returns"
            yield not_understood(what, places=places_of(storage=made))


@function_sites("symbol")
def symbols(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The symbols of the function that nothing defines."""
    every = context.analysis.cfg.at(PointKind.INSTRUCTION, PointKind.BRANCH)
    for name, origin in context.function.symbols.items():
        if origin is ir.Origin.UNDEFINED:
            uses = (one for one in every if any(name in expr.symbols for expr in expressions_of(one[1])))
            first, found = next(uses, (0, None))
            span = (found and found.span) or context.function.span
            yield first, Site(kind="symbol", span=span, relation="defined-nowhere", texts={"symbol": name})


@function_sites("construct")
def constructs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """The constructs of the function that were not understood, once a kind; not what follows from another."""
    for index, found in context.analysis.cfg.of_type(ir.NotUnderstood):
        if found.fault is not None:  # that is an error
            continue
        if not any(isinstance(context.definition(read), ir.NotUnderstood) for read in found.reads):
            yield index, not_understood(found.what)


@function_sites("use", "kill")
def handle_faults(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Uses and kills of variables that are killed, and uses of variables out of scope."""
    killed = ((fault, places_of(kill=fault.earlier)) for fault in uses_after_kill(context.paths))
    unknown = ((fault, places_of(allocation=fault.earlier)) for fault in out_of_scope(context.paths))
    for fault, places in chain(killed, unknown):
        user, doubt = context.instruction(fault.point), None
        if isinstance(fault.earlier, ir.Kill) and fault.earlier.target is not fault.var:
            behind = context.program.stage != "as-is" or fault.earlier.kind == "object"
            if fault.kind == "double-kill" or behind:
                continue
            doubt = (
                f"`{name_of(fault.earlier.target)}` has a register of its own, unless KillAfterLastUse is run"
            )
        site = Site(
            kind="kill" if fault.kind == "double-kill" else "use",
            uncertainty=doubt,
            relation=fault.kind,
            texts={
                "variable": name_of(fault.var),
                "user": "the function's result" if user is None else caller_name(user),
            },
            places=places,
            path=fault.path,
        )
        yield fault.point, site


@function_sites("allocation")
def leaks(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Storages and tensors that are allocated and never used, or never killed where the function kills
    others.
    """
    cfg = context.analysis.cfg
    used = used_variables(cfg)
    killed = {var for index, _ in cfg.of_type(ir.Kill) for var in cfg.points[index].uses}
    freed: RegionSet | None = None
    allocations: Sequence[tuple[int, ir.AllocStorage | ir.AllocTensor]]
    allocations = cfg.of_type(ir.AllocStorage, ir.AllocTensor)
    for index, made in allocations:
        relation = "never-used" if made.var not in used else "never-killed"
        if relation == "never-killed":
            if not killed or made.var in killed:
                continue
            freed = _escaping(context) | context.regions_of(killed) if freed is None else freed
            if context.regions_of((made.var,)) & freed:
                continue
        kind = "storage" if isinstance(made, ir.AllocStorage) else "tensor"
        texts = {"variable": made.var.name, "kind": kind}
        yield index, Site(kind="allocation", relation=relation, texts=texts)


def _escaping(context: FunctionContext) -> RegionSet:
    """The regions that the function's result points to, and what they are parts of."""
    found = NO_REGIONS
    for target in context.points_to.result_targets():
        found |= context.points_to.ancestors[target.region]
    return found


@function_sites("result")
def unsafe_results(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Results of a function called from outside that lie on a storage which outlives the call.

    Doubtful unless the storage is known to be kept: a caller may hand over another one each time.
    """
    if context.function.private:
        return
    points_to, last = context.points_to, len(context.analysis.cfg.points) - 1
    targets = {t.region: t.path for t in points_to.result_targets() if t.certain}
    for region, path in ((points_to.regions[number], path) for number, path in targets.items()):
        root = points_to.regions[region.root]
        outlives, doubt = _kept_elsewhere(root)
        if region.kind is RegionKind.TENSOR and outlives:
            site = Site(
                kind="result",
                instruction=region.instruction,
                relation="views-reused-memory",
                texts={"variable": region.name, "storage": root.name},
                uncertainty=doubt,
                path=path,
            )
            yield last, site


def _kept_elsewhere(root: Region) -> tuple[bool, str | None]:
    """True where memory comes from outside the function, or is kept from call to call; and the reason for
    which the next call may not use it.
    """
    match root.instruction:
        case ir.CallPacked(name=name):
            return True, f"`{name}` may hand out new memory at each call"
        case ir.CallFunction(kept=True):
            return True, None
    return root.external, f"the next call may be given another `{root.name}`"


@function_sites("donated-input")
def overwritten_inputs(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find results that are views of a parameter, and outputs of kernels in place, where what they lie over
    is read behind a write of them.

    Of several such reads of one view it is the surest fault; each comes with its program point.
    """
    points_to = context.points_to
    views = [t for t in points_to.result_targets() if points_to.regions[t.region].kind is RegionKind.VIEW]
    results = [t for t in views if contains(points_to.given, points_to.regions[t.region].root)]
    found = {**dict.fromkeys(results, False), **dict.fromkeys(_written_in_place(context), True)}
    for target, in_place in found.items():
        view = points_to.regions[target.region]
        stale = ((_is_gone(context, view, *one), *one) for one in context.conflicts.stale_reads(target))
        about = (context, target, in_place)
        sites = [(_uncertainty(*about, *one), *one[1:]) for one in stale if one[0] is not False]
        sites.sort(key=lambda found: (found[0] is not None, found[2].point, found[1].point))
        for uncertainty, write, read in sites[:1]:
            yield read.point, _donated_site(context, view, write, read, uncertainty)


def _is_gone(context: FunctionContext, view: Region, write: Access, read: Access) -> bool | None:
    """False for a read of what is written anew behind `write`, each byte for sure; None if in doubt."""
    content, conflicts, ancestors = context.analysis.content, context.conflicts, context.points_to.ancestors
    where = read.point, read.region
    again = [
        part
        for number in members(ancestors[read.region] & ~ancestors[view.number])
        for one in conflicts.writes.get(number, ())
        if write.point < one.point < read.point and one.certain and one.path <= read.path
        for part in content.writes(one.point, number)
    ]
    sure = [part for part in again if part.elements.exact and not part.elements.by_data]
    gaps = [gap_between(wanted, sure) for wanted in content.reads(*where)] if content.loads(*where) else []
    asked = [gap and (gt(gap.lacking, 0), *(gap.passes.conditions if gap.passes else ())) for gap in gaps]
    left = [one and conflicts.paths.possible(one) for one in asked]
    doubt = bool(again) and (None in left or any(g and g.passes for g in gaps) or len(sure) < len(again))
    return False if all(one is False for one in left) else None if doubt else True


def _written_in_place(context: FunctionContext) -> Iterator[Target]:
    """The views that kernels in place write, which are given what these lie over, for its extents alone."""
    points_to, kernels = context.points_to, context.program.kernels
    for _, call in context.analysis.cfg.of_type(ir.CallKernel):
        if call.kernel not in context.program.in_place or call.kernel not in kernels:
            continue
        pairs = zip(kernels[call.kernel].parameters, call.arguments, strict=False)
        buffers = [(p, a) for p, a in pairs if isinstance(p, ir.KernelBuffer) and p.dtype is not None]
        idle = (a for p, a in buffers if not (p.reads or p.writes))
        over = region_set(t.region for argument in idle for t in points_to.targets_of(argument))
        for target in (t for p, a in buffers if over and p.writes for t in points_to.targets_of(a)):
            if points_to.ancestors[target.region] & ~RegionSet(1 << target.region) & over:
                yield target


def _uncertainty(
    context: FunctionContext, target: Target, in_place: bool, gone: bool | None, write: Access, read: Access
) -> str | None:
    """Why it may be no fault; None where it surely is, as where a kernel writes `in_place`."""
    writer, view = caller_name(context.instruction(write.point)), context.points_to.regions[target.region]
    if not (write.certain and read.certain and target.certain):
        return "an alias is not certain"
    if gone is None:
        return f"how much is written anew before {caller_name(context.instruction(read.point))} is not known"
    if write.point == read.point:
        return f"{writer} may have read each element before it overwrites it"
    rewritten = context.analysis.effects[write.point].must_defs & context.points_to.ancestors[view.number]
    if not in_place and (context.instruction(read.point) is None or not rewritten):
        return f"{writer} may be meant to update `{context.points_to.regions[view.root].name}` in place"
    return None


def _donated_site(
    context: FunctionContext, view: Region, write: Access, read: Access, uncertainty: str | None
) -> Site:
    root = context.points_to.regions[view.root]
    writer, reader = context.instruction(write.point), context.instruction(read.point)
    return Site(
        kind="donated-input",
        instruction=writer if reader is None else None,
        quantities={} if view.nbytes is None else {"output.nbytes": view.nbytes},
        unknown="how large the result is, is not known here",
        texts={
            **alias_at(context, read.point, root),
            "output": view.name,
            "input": root.name,
            "writer": caller_name(writer),
            "reader": caller_name(reader),
        },
        places=places_of(output=view.instruction, writer=writer),
        dedup_key=view.number,
        uncertainty=uncertainty,
        path=read.path,
    )


@function_sites("construct", expanded=True)
def overwritten_while_kept(context: FunctionContext) -> Iterator[tuple[int, Site]]:
    """Find tensors that a packed function holds on to, or may, and whose memory others write.

    Where it only may, it matters if such a function is called behind the write, which may read what is lost.
    """
    keepers = _keepers(context)
    for point, keeper in keepers:
        kept = context.points_to.resolve(context.analysis.effects[point].captures)
        for number in members(kept & ~context.points_to.storages):
            region = context.points_to.regions[number]
            readers = ((context.points_to.cfg.exit, keeper),) if keeper.contract.keeps else keepers
            found = _lost_while_kept(context, point, region, readers)
            if found is not None:
                write, reader = found
                writer = caller_name(context.instruction(write.point))
                holds, then = "may hold", f"before `{reader}` may read it"
                if keeper.contract.keeps:
                    holds, then = "holds", "afterwards"
                what = (
                    f"`{keeper.name}` {holds} on to `{region.name}`, whose memory {writer} overwrites {then}"
                )
                more = {"path": write.path, "until": write.point, "dedup_key": (point, number)}
                yield point, not_understood(what, **more)


def _keepers(context: FunctionContext) -> Sequence[tuple[int, ir.CallPacked]]:
    """The calls of packed functions that keep an argument, or may: they are impure, of unknown effect, and no
    library's.

    A library is given memory without content, among other things, and fills it.
    """
    return [
        (point, call)
        for point, call in context.analysis.cfg.of_type(ir.CallPacked)
        if call.contract.keeps or (call.may_capture and not call.pure and not _fills(context, point))
    ]


def _fills(context: FunctionContext, point: int) -> bool:
    """True if a call is given a tensor that nothing has written so far."""
    points_to, effect = context.points_to, context.analysis.effects[point]
    writes = context.conflicts.writes.items()
    written = {number for number, first in writes if first[0].point < point}
    empty = (RegionKind.TENSOR, RegionKind.FRESH)
    given = (points_to.regions[number] for number in members(points_to.resolve(effect.reads)))
    return any(r.kind in empty and written.isdisjoint(members(points_to.ancestors[r.number])) for r in given)


def _lost_while_kept(
    context: FunctionContext, keeper: int, region: Region, readers: Sequence[tuple[int, ir.CallPacked]]
) -> tuple[Access, str] | None:
    """A write behind `keeper` of memory that is also `region`'s, and what may read that behind it."""
    conflicts, paths = context.conflicts, context.paths
    for number in members(conflicts.siblings(region.number)):
        for write in conflicts.writes.get(number, ()):
            shared = write.point > keeper and conflicts.share(region.number, number, write.path, write.point)
            if shared is not False:
                path = paths.at[keeper] | write.path | region.path
                behind = ((p, r.name) for p, r in readers if p > write.point)
                for point, reader in behind:
                    if paths.feasible(path | paths.at[point], point):
                        return write._replace(path=path | paths.at[point]), reader
    return None
