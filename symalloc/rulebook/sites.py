"""The kinds of sites a rule can ask about: for each, the names its constraint and its message may use.

A rule is data, the site is code (`symalloc.linter.sites`): this table is the contract between them.  Names in
`quantities` stand for size expressions of the given unit and may be used in constraints; names in `texts`
stand for words and may be used in messages, labels and help.  `relations` are the lifetime relations built
into the engine, asked for by name (`relation = "use-after-kill"`) instead of a constraint.  `places` are
the further spans a rule may label.  A text may be absent at a particular site (`noticed_at`): help and
notes that use it are then left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symalloc.rulebook.language import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKind:
    """One kind of site: what it is, and the names it offers."""

    name: str
    description: str
    quantities: Mapping[str, Unit] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    relations: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


_B, _E, _1 = Unit.BYTES, Unit.ELEMENTS, Unit.NUMBER
_TWO_PLACES = {"first.offset": _B, "first.nbytes": _B, "second.offset": _B, "second.nbytes": _B}

_KINDS = (
    SiteKind(
        name="tensor-on-storage",
        description="a tensor placed on a storage (R.memory.alloc_tensor, R.vm.alloc_tensor)",
        quantities={
            "offset": _B,
            "nbytes": _B,
            "numel": _E,
            "itemsize": Unit.BYTES_PER_ELEMENT,
            "alignment": _B,
            "storage.size": _B,
        },
        # difference: "device 0 against device 1"; noticed_at: "m = 1025", where TVM's own check first fails
        texts=(
            *("tensor", "storage", "shape", "dtype", "storage.dtype", "device", "storage.device"),
            *("difference", "noticed_at"),
        ),
        relations=("placement-differs",),
        places=("storage",),
    ),
    SiteKind(
        name="plan-condition",
        description="memory that a planned function reserves, and a condition that its plan rests on",
        quantities={"excess": _1},  # positive where the condition does not hold
        texts=("condition",),
    ),
    SiteKind(
        name="storage",
        description="the allocation of a storage",
        quantities={"size": _B},
        texts=("storage",),
    ),
    SiteKind(
        name="memory-place",
        description="the device and the memory scope of an allocation",
        quantities={"device": _1, "devices": _1, "scopes": _1},  # scopes: 1 where the device has it, else 0
        # problem: "device 2, and the module names 2"
        texts=("variable", "problem"),
    ),
    SiteKind(
        name="extent",
        description="one dimension of a tensor that is allocated or viewed",
        quantities={"extent": _E},
        texts=("tensor", "index", "shape"),
    ),
    SiteKind(
        name="byte-count",
        description="bytes counted in int64: the end of a tensor in its storage, the size of a storage",
        quantities={"nbytes": _B},
        texts=("what",),
    ),
    SiteKind(
        name="divisor",
        description="a divisor in a size, an offset or an extent",
        quantities={"divisor": _1},
        texts=("variable",),
    ),
    SiteKind(
        name="view",
        description="a view on another tensor's memory (R.memory.view, reshape, ensure_zero_offset)",
        quantities={"offset": _B, "nbytes": _B, "source.nbytes": _B, "absolute_offset": _B, "alignment": _B},
        texts=("tensor", "source", "kind"),
        places=("source",),
    ),
    SiteKind(
        name="written-view",
        description="a result of ensure_zero_offset that is written",
        quantities={"absolute_offset": _B, "alignment": _B},
        texts=("tensor", "source", "writer"),
        places=("writer",),
    ),
    SiteKind(
        name="reshape",
        description="a reshape that keeps the elements and changes the extents",
        quantities={"numel": _E, "source.numel": _E},
        texts=("tensor", "source", "shape", "source.shape"),
        places=("source",),
    ),
    SiteKind(
        name="match-cast",
        description="one dimension that R.match_cast compares at run time",
        quantities={"source.extent": _E, "extent": _E},
        texts=("value", "source", "index"),
    ),
    SiteKind(
        name="call-argument",
        description="one property of an argument that must equal what the PrimFunc's buffer declares",
        quantities={"actual": _1, "expected": _1},
        # subject: "extent 0 of `x`"; declarer: "`copy` declares for `source`"
        texts=("kernel", "parameter", "argument", "property", "subject", "declarer"),
    ),
    SiteKind(
        name="buffer-layout",
        description="the byte offset or a stride that the PrimFunc's buffer declares, beside an argument's",
        quantities={"actual": _1, "expected": _1},
        # subject: "stride 0 of `x`"; declarer: "`copy` declares for `source`"
        texts=("kernel", "parameter", "argument", "property", "subject", "declarer"),
    ),
    SiteKind(
        name="ignored-offset",
        description="a tensor passed to code that may look only at its pointer (a test, a packed function)",
        quantities={"offset": _B},
        texts=("tensor", "receiver"),
    ),
    SiteKind(
        name="call",
        description="a call of another Relax function whose own verification left a precondition",
        quantities={},
        texts=("callee", "condition", "rule"),
        relations=("callee-precondition-fails",),
    ),
    SiteKind(
        name="index",
        description="a constant index of an operator that neither checks nor wraps it (R.take mode=fast)",
        quantities={"index": _E, "extent": _E},
        texts=("operator", "tensor", "axis", "mode"),
    ),
    SiteKind(
        name="needed-elements",
        description="an operator that takes elements of some axes, the product of the other extents beside",
        quantities={"needed": _E, "elements": _E, "others": _E},
        # axis: "axis 0 of ", or nothing where it goes over all
        texts=("operator", "tensor", "axis"),
    ),
    *(
        SiteKind(
            name=f"kernel-{access}",
            description=f"one index of a {access} in the body of a kernel, at a call of it",
            quantities={"least": _E, "greatest": _E, "extent": _E},
            # reach: "is i + 16, from 16 to n + 15"
            texts=("kernel", "buffer", "argument", "axis", "reach", "index"),
        )
        for access in ("store", "load")
    ),
    SiteKind(
        name="use",
        description="a use of a variable",
        texts=("variable", "user"),
        relations=("use-after-kill", "not-dominated"),
        places=("kill", "allocation"),
    ),
    SiteKind(
        name="kill",
        description="a kill of a variable",
        texts=("variable",),
        relations=("double-kill",),
        places=("kill",),
    ),
    SiteKind(
        name="live-pair",
        description="two tensors in one storage, the second written while the first is still needed",
        # lost: bytes that are read and not written anew, counted where something is written anew; else 1
        quantities={**_TWO_PLACES, "lost": _B},
        texts=("first", "second", "storage", "alias", "writer", "reader"),
        places=("first", "second", "reader"),
    ),
    SiteKind(
        name="read",
        description="a read of memory that something else has not written on every path before",
        # lacking: bytes that are read and not written; what: "which nothing has written before"
        quantities={"lacking": _B},
        texts=("tensor", "reader", "what", "later"),
        places=("allocation", "later"),
    ),
    SiteKind(
        name="donated-input",
        description="a result that is a view of a parameter, which is read after the result was written",
        quantities={"output.nbytes": _B},
        texts=("output", "input", "alias", "writer", "reader"),
        places=("output", "writer"),
    ),
    SiteKind(
        name="kernel-arguments",
        description="two arguments of a kernel in one memory, the second of them written",
        quantities=_TWO_PLACES,
        # use: "reads" or "writes", what the kernel does to the first
        texts=("kernel", "first", "second", "storage", "use", "first.parameter", "second.parameter"),
    ),
    SiteKind(
        name="constant-write",
        description="a call that writes a constant of the executable",
        texts=("constant", "writer"),
        relations=("constant-written",),
    ),
    SiteKind(
        name="inplace-operand",
        description="the operand of an in-place call (R.call_tir_inplace), used after the call",
        texts=("operand", "alias", "writer", "reader"),
        relations=("used-later",),
        places=("writer",),
    ),
    SiteKind(
        name="allocation",
        description="a storage or tensor that is allocated",
        texts=("variable", "kind"),
        relations=("never-killed", "never-used"),
    ),
    SiteKind(
        name="result",
        description="the result of a function",
        texts=("variable", "storage"),
        relations=("views-reused-memory",),
    ),
    SiteKind(
        name="held-memory",
        description="the most that a call of a function holds at once, where a budget is given (--budget)",
        quantities={"held": _B, "budget": _B},
        # amount: the formula of `held`, or of how many sums it is the largest
        texts=("what", "amount"),
    ),
    SiteKind(
        name="declared-bound",
        description="the declared bounds of a symbol (tir_var_upper_bound, tir_var_lower_bound, "
        "tir_non_negative_var) that a verdict of this function needs",
        # declared: "at most 4"; check: "m <= 4"; count: "2 constraints need"
        texts=("symbol", "declared", "check", "count", "needed_by"),
        relations=("bound-not-enforced",),
    ),
    SiteKind(
        name="suppression",
        description="a suppression comment",
        texts=("rule",),
        relations=("unused-suppression",),
    ),
    SiteKind(
        name="input",
        description="a file or module that is read",
        texts=("file", "problem"),
        relations=("cannot-be-read",),
    ),
    SiteKind(
        name="symbol",
        description="a symbol of a function",
        texts=("symbol",),
        relations=("defined-nowhere",),
    ),
    SiteKind(
        name="construct",
        description="a construct that the extraction found",
        texts=("what",),
        relations=("not-understood", "kernel-not-verified"),
    ),
)

SITE_KINDS: Mapping[str, SiteKind] = {kind.name: kind for kind in _KINDS}
