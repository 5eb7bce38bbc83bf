"""Scripts that try to run code while they are read.

EVIL stands for an expression that creates the folder MARK, QUOTED for the same as the text of a string.
`ATTACKS` are all of them; all are refused.
"""

from __future__ import annotations

__all__ = ["ATTACKS", "HARMLESS", "WORKING", "written"]

_IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"
_X = 'x: R.Tensor(("n",), "float32")'
_A = 'a: T.Buffer((4,), "float32")'


def _module(body: str, imports: str = _IMPORTS, header: str = "@I.ir_module\nclass M:") -> str:
    return f"{imports}{header}\n{body}"


def _relax(statement: str = "y = x", params: str = _X, returns: str = "", before: str = "") -> str:
    return _module(
        f"{before}    @R.function\n    def main({params}){returns}:\n        n = T.int64()\n"
        f"        {statement}\n        return x\n"
    )


def _tir(statement: str = "pass", params: str = _A, imports: str = _IMPORTS) -> str:
    return _module(f"    @T.prim_func\n    def k({params}):\n        {statement}\n", imports)


def _size(expression: str) -> str:
    return _relax(f"y = R.reshape(x, R.shape([{expression}]))")


_PLAIN = "    @R.function\n    def main(x: R.Tensor((2,), 'float32')):\n        return x\n"
_NO_R = "from tvm.script import ir as I, tirx as T\n"
_OTHER = "    @R.function\n    def other(eval: R.Tensor((2,), 'float32')):\n        return eval\n"
_BODY_SHAPE = "y: R.Shape([{}]) = R.shape([2])"

# what runs where TVM parses it unguarded
WORKING: dict[str, str] = {
    # an expression where a size is expected
    "call": _size("EVIL"),
    "if-expression": _size("EVIL if True else 1"),
    "boolean operator": _size("EVIL or 1"),
    "comparison": _size("1 < EVIL"),
    "unary operator": _size("-EVIL"),
    "binary operator": _size("n + EVIL"),
    "call of a lambda": _size("(lambda: EVIL)()"),
    "comprehension": _size("EVIL for _ in (1,)"),
    "starred": _relax("y = R.concat([*EVIL])"),
    "keywords": _relax("y = R.add(**EVIL)"),
    "dictionary key": _relax("R.func_attr({EVIL: 1})"),
    "meta_var": _relax("y = I.meta_var(EVIL)"),
    "index map": _relax("y = R.layout_transform(x, index_map=T.index_map(lambda i: EVIL))"),
    "index map default": _relax("y = R.layout_transform(x, index_map=T.index_map(lambda i, j=EVIL: i))"),
    # annotations are evaluated, and called where they can be
    "annotation": _relax("y: EVIL = x"),
    "parameter annotation": _relax(params="x: EVIL"),
    "return annotation": _relax(returns=" -> EVIL"),
    # quoted extents are evaluated
    "quoted extent": _relax(params='x: R.Tensor(("QUOTED",), "float32")'),
    "quoted extent in a body": _relax('y: R.Shape(["QUOTED"]) = R.shape([2])'),
    "quoted extent in a tuple": _relax('y: R.Tuple(R.Shape(["QUOTED"])) = x'),
    "quoted extent put together": _relax(
        _BODY_SHAPE.format("\"(__import__('os')\" + \".mkdir('MARK') or 1)\"")
    ),
    "quoted extent formatted": _relax(_BODY_SHAPE.format("\"(%s('os').mkdir('MARK') or 1)\" % '__import__'")),
    "quoted extent in a constant": 'E = "QUOTED"\n' + _relax(_BODY_SHAPE.format("E")),
    "quoted extent in a tuple constant": 'E = ("QUOTED",)\n' + _relax("y: R.Shape(E) = R.shape([2])"),
    "quoted extent of two constants": "E = \"(__import__('os')\"\nF = \".mkdir('MARK') or 1)\"\n"
    + _relax(_BODY_SHAPE.format("E + F")),
    # statements
    "statement": _relax("EVIL"),
    "with": _relax("with EVIL: pass"),
    "if": _relax("if EVIL:\n            y = x\n        else:\n            y = x"),
    "return": _relax("return EVIL"),
    "yield": _relax("y = yield EVIL"),
    "attribute target": _relax("x.data = EVIL"),
    "exec": _relax('exec("QUOTED")'),
    "eval": _relax('y = eval("QUOTED")'),
    "eval named like a parameter elsewhere": _relax('y = eval("QUOTED")', before=_OTHER),
    "for": _tir("for i in EVIL: pass"),
    "while": _tir("while EVIL: pass"),
    "assert": _tir("assert EVIL, 'x'"),
    "augmented assignment": _tir("a[EVIL] += 1.0"),
    "subscript target": _tir("a[EVIL] = 1.0"),
    "slice": _tir("b = a[EVIL:4]"),
    # definitions
    "default value": _tir("@T.inline\n        def f(b=EVIL):\n            pass\n        f()"),
    "decorator": _module(f"    @EVIL\n    def k({_A}):\n        pass\n"),
    "decorator argument": _module(_PLAIN.replace("@R.function", "@R.function(pure=EVIL)")),
    "module attribute": _module("    I.module_attrs({'a': EVIL})\n" + _PLAIN),
    "class body": _module("    EVIL\n" + _PLAIN),
    "class body assignment": _module("    k = EVIL\n" + _PLAIN),
    "nested class": _module("    class N:\n        EVIL\n" + _PLAIN),
    # reaching Python through the dialect
    "globals of an operator": _size(
        "R.add.__globals__['__builtins__']['__import__']('os').mkdir('MARK') or 1"
    ),
    "globals of a decorator": _size("I.ir_module.__globals__['inspect'].os.mkdir('MARK') or 1"),
    "modules of the dialect": _size("R.entry.inspect.os.mkdir('MARK') or 1"),
    "emit_te": _relax("y = R.emit_te(EVIL, x)"),
    # names that are not what they seem
    "R is computed": "R = __import__('os')\n" + _tir("a[0] = R.mkdir('MARK') or 1.0", imports=_NO_R),
    "R is a library": "import os as R\n" + _tir("a[0] = R.mkdir('MARK') or 1.0", imports=_NO_R),
    "a function of the file": "def f():\n    return EVIL\n" + _size("f()"),
    "another encoding": "# -*- coding: utf-7 -*-\n" + _size("+AF8-_import__('os').mkdir('MARK') or 1"),
}

# what does nothing even there: it fails before, or needs a terminal, or a library
NEEDS_MORE: dict[str, str] = {
    "walrus": _size("(z := EVIL)"),
    "subscript of a builtin": _size("__builtins__['__import__']('os').mkdir('MARK') or 1"),
    "annotation that is called": _relax(params="x: breakpoint"),
    "annotation that is called before its name is bound": _relax(
        params="x: input, input: R.Tensor((2,), 'float32')"
    ),
    "quoted extent of a buffer": _tir(params='a: T.Buffer(("QUOTED",), "float32")'),
    "raise": _relax("raise EVIL"),
    "try": _relax("try:\n            EVIL\n        except Exception:\n            pass"),
    "match": _relax("match EVIL:\n            case _:\n                y = x"),
    "global": _relax("global R"),
    "import": _relax("import os"),
    "f-string": _relax("y = R.call_packed(f'{x}', x)"),
    "print": _relax("print(x)"),
    "getattr": _relax("y = getattr(R, 'add')(x, x)"),
    "inline": _tir("@T.inline\n        def f():\n            EVIL\n        f()"),
    "two decorators": _module(_PLAIN.replace("@R.function", "@EVIL\n    @R.function")),
    "class decorator argument": _module(_PLAIN, header="@I.ir_module(check_well_formed=EVIL)\nclass M:"),
    "base class": _module(_PLAIN, header="@I.ir_module\nclass M(EVIL):"),
    "class keyword": _module(_PLAIN, header="@I.ir_module\nclass M(metaclass=EVIL):"),
    "class body loop": _module("    for i in [1]: EVIL\n" + _PLAIN),
    "python function": _module("    @I.pyfunc\n    def main(x):\n        EVIL\n"),
    "macro": _IMPORTS + "@R.macro\ndef mac(x):\n    EVIL\n    return x\n" + _relax("y = mac(x)"),
    "subclasses": _size("len(().__class__.__base__.__subclasses__())"),
    "call_kernel": _tir("T.call_kernel('MARK', [1], [1])"),
    "register_script_namespace": _relax("T.register_script_namespace('x', 1)"),
    "the parser itself": _relax("y = __current_script_parser__.diag"),
    "tvm": "import tvm\n" + _size("tvm.get_global_func('x')"),
    "modules of tvm": "import tvm\n" + _size("tvm.contrib.utils.os.mkdir('MARK') or 1"),
    "from_source": "import tvm\n" + _relax("y = tvm.script.from_source('')"),
    "type inference": _relax(params="x: R.Callable(derive_func='runtime.SystemLib')"),
    "type inference by position": _relax(params="x: R.Callable(None, None, True, 'runtime.SystemLib')"),
    "R is assigned inside": _relax("R = x"),
    "T is rebound later": _tir("a[0] = T.mkdir('MARK') or 1.0") + "import os as T\n",
    "a star import": "from os import *\n" + _tir("a[0] = mkdir('MARK') or 1.0"),
    "an imported name": "from mylib import SHAPE\n" + _size("SHAPE()"),
}

ATTACKS = WORKING | NEEDS_MORE

# read without complaint: what runs when the file is imported does not run when it is read
HARMLESS: dict[str, str] = {
    "module-level code": "EVIL\n" + _relax(),
    "bound of a type variable": "from typing import TypeVar\nn = TypeVar('n', bound=EVIL)\n" + _relax(),
    "default of a function outside": "def f(x=EVIL):\n    pass\n" + _relax(),
    "base of a class outside": "class C(EVIL):\n    pass\n" + _relax(),
}


def written(template: str, mark: str) -> str:
    """The attack as a file that would create `mark`."""
    evil = f"(__import__('os').mkdir('{mark}') or 1)"
    return template.replace("QUOTED", evil).replace("EVIL", evil).replace("MARK", mark)
