"""Check a certificate of symalloc without symalloc: python examples/check_certificate.py FOLDER [MODULE]

It rebuilds from the index what has to be proved, compares that with the scripts, asks z3 (`pip install
z3-solver`) for answers, and compares the index with MODULE, the planned module that is run, as TVMScript, or
without it with the text in FOLDER: sizes, offsets, who is live with whom, guards.  Exit status: 0 accepted,
1 refused, 2 not readable.  With --packing, for `symalloc pack`, there is no function.  Taken for granted: what
is called keeps to the tensors that it gets; vm.builtin functions give new ones.
"""

import ast, json, re, sys  # noqa: E401
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path

import z3

CLAIMS = {
    "start": "(<= 0 %offset)", "aligned": "(= (mod %offset %alignment) 0)",
    "holds": "(<= %bytes %size)", "size": "(<= 0 %size)", "inside": "(<= (+ %offset %size) %arena)",
    "apart": "(or (<= (+ %offset %size) %offset2) (<= (+ %offset2 %size2) %offset)"
    " (<= %size 0) (<= %size2 0))",
    "most": "(<= %value 9223372036854775807)", "least": "(<= (- 9223372036854775808) %value)",
    "divisor": "(<= 1 %value)", "guard": "(=> %check %condition)",
}
VIEWS = {"", "vm.builtin.reshape", "vm.builtin.copy", "runtime.TVMTensorCreateView", "R.memory.view"}
VIEWS |= {"R.memory.ensure_zero_offset", "R.reshape", "R.match_cast"}
FRESH = r"R\.(?!memory.view|memory.ensure|reshape|match_cast)|vm\.builtin\.(?!reshape|copy)|T\."
WORDS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "div", ast.Mod: "mod", ast.And: "and"}
WORDS |= {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=", ast.Or: "or"}
CHOICES = {"T.min": "<=", "T.max": ">="}
CALLS = {"T.Select": "ite", "T.if_then_else": "ite", "T.And": "and", "T.Or": "or"}
TERM = re.compile(r"\d+|[-+*]|[<>]=?|=|div|mod|ite|let|and|or|not|distinct|true|false|%[ab]")

class Refused(Exception): ...

def need(holds, problem):
    if not holds: raise Refused(problem)

@cache
def answer(script):
    solver = z3.SimpleSolver()
    solver.set("timeout", 60_000)
    solver.from_string(script)
    return str(solver.check())

def parsed(text):
    words = re.findall(r"\|[^|]*\||[()]|[^\s()|]+", text)
    spelled = "".join({"(": "[", ")": "],"}.get(word) or f"{json.dumps(word)}," for word in words)
    return json.loads(re.sub(r",(?=]|$)", "", spelled))

def written(term):
    return term if isinstance(term, str) else f"({' '.join(map(written, term))})"

def values(term, found):
    """Add a size and the sizes in it, at every depth, to `found`; those that divide are True there."""
    found.setdefault(written(term), False)
    for part in term[1:] if term[0] == "+" else [term]:
        for factor in part[1:] if part[0] == "*" else [part]:
            if isinstance(factor, str) or factor[0] == "-": continue
            for operand in operands(factor):
                values(operand, found)
            if factor[0] in ("div", "mod") and not (isinstance(factor[2], str) and factor[2].isdigit()):
                found[written(factor[2])] = True

def operands(atom):
    """The sizes in a quotient, a remainder, a minimum, a maximum or a choice, or those in a condition."""
    match atom:
        case ["div" | "mod", left, right]: return [left, right]
        case ["let", [["%a", left], ["%b", right]], ["ite", ["<=" | ">=" as word, "%a", "%b"], "%a", "%b"]]:
            return [*(operands(left) if left[0] == "let" and left[2][1][0] == word else [left]), right]
        case ["ite", test, then, otherwise]: return [*operands(test), then, otherwise]
        case ["and" | "or", *parts]: return [size for part in parts for size in operands(part)]
        case ["<=" | "=" | "distinct", size, "0"]: return [size]
    raise Refused(f"no size: {written(atom)}")

def sums(text):
    """A size, and the sums of its positive and of its negative terms where it has both."""
    term, parts = parsed(text), {False: [], True: []}
    for part in term[1:] if term[0] == "+" else ():
        head = part[1] if part[0] == "*" else part
        parts[isinstance(head, list) and head[0] == "-"].append(part)
    both = all(parts.values())
    return [written(some[0] if len(some) == 1 else ["+", *some]) for some in parts.values() if both] + [text]

def together(one, other):
    return any(max(a, c) < min(b, d) for a, b in one["live"] for c, d in other["live"])

def script(plan, assumed, terms=(), claim=""):
    """What denies a claim over `terms`, or asks for a point at which all that is assumed holds."""
    lines = ["(set-logic ALL)", *(f"(declare-const |{name}| Int)" for name in plan["symbols"])]
    for name, limits in plan["symbols"].items():
        low, high = (str(n) if n >= 0 else f"(- {-n})" for n in limits)
        lines.append(f"(assert (<= {low} |{name}| {high}))")
    lines += [f"(assert {condition})" for condition in assumed]
    sort = "Bool" if claim == CLAIMS["guard"] else "Int"
    lines += [f"(define-fun {n} () {sort} {terms[n[1:]]})" for n in dict.fromkeys(re.findall(r"%\w+", claim))]
    return "\n".join([*lines, *([f"(assert (not {claim}))"] if claim else []), "(check-sat)"])

def wanted(plan, machine):
    """The scripts of all claims that there must be, by kind, arena, and what they are about."""
    found = {}
    declared = [guard["condition"] for guard in plan["guards"] if guard["declared"]]
    def claim(kind, number, about, terms, assumed=declared):
        found[kind, number, about] = script(plan, assumed, terms, CLAIMS[kind])
    for number, guard in enumerate(plan["guards"]):
        claim("guard", 0, str(number), guard, [])
    for number, arena in enumerate(plan["arenas"]):
        sizes, numbered = {}, list(enumerate(arena["buffers"]))
        for i, one in numbered:
            for kind in ("start", "aligned", "holds", "size", "inside"):
                claim(kind, number, (i,), {**one, "arena": arena["size"]})
        for (i, one), (j, other) in [p for pair in combinations(numbered, 2) for p in (pair, pair[::-1])]:
            if together(one, other):
                claim("apart", number, (i, j), {**one, "offset2": other["offset"], "size2": other["size"]})
        for size in (arena["size"], *(buffer["offset"] for _, buffer in numbered)):
            values(parsed(size), sizes)
        before = [g for g in plan["guards"] if g["declared"] or g["behind"] in (None, arena["behind"])]
        for value in (part for size in sizes for part in sums(size)) if machine else ():
            for kind in ("most", "least"):
                claim(kind, number, value, {"value": value}, [guard["condition"] for guard in before])
        for value in (size for size, divides in sizes.items() if divides):
            claim("divisor", number, value, {"value": value})
    return found

def compare(plan, folder, machine):
    """The files of a plan: each script denies what it is said to deny, and every claim has one."""
    symbols = {f"|{name}|" for name in plan["symbols"] if not re.search(r"[|\\]", name)}
    terms = [guard[key] for guard in plan["guards"] for key in ("condition", "check")]
    terms += [text for arena in plan["arenas"] for text in (arena["size"], *(
        str(b[key]) for b in arena["buffers"] for key in ("offset", "size", "bytes", "alignment")))]
    for term in set(terms):  # nothing that a script would read as more than a term over the symbols
        words = re.findall(r"\|[^|]*\||[^\s()]+", term)
        sound = written(parsed(term)) == term and all(w in symbols or TERM.fullmatch(w) for w in words)
        need(sound and len(symbols) == len(plan["symbols"]), f"no term over the symbols: {term}")
    needed = wanted(plan, machine)
    missing = {key for key in needed if key[2] <= key[2][::-1] or isinstance(key[2], str)}
    for row in plan["claims"]:
        name, lines = row["file"], (folder / row["file"]).read_text(encoding="utf-8").splitlines()
        body = "\n".join(line for line in lines if not line.startswith((";", "(set-info")))
        for about in map(tuple, row["buffers"]) if row["value"] is None else [row["value"]]:
            key = row["kind"], row["arena"], about
            once = key if isinstance(about, str) else (*key[:2], tuple(sorted(about)))
            need(once in missing and key in needed, f"{name}: {key} is not asked for, or twice")
            need(body == needed[key], f"{name}: this is not the script of {key}")
            missing.remove(once)
        need(row["expected"] == answer(body) == "unsat", f"{name}: it is not proved: {answer(body)}")
    need(not missing, f"`{plan['function']}`: no script for {sorted(missing, key=str)[:3]}")
    possible = answer(script(plan, [guard["condition"] for guard in plan["guards"]])) == "sat"
    need(possible, f"`{plan['function']}`: its guards hold at no shape")
    return [row["file"] for row in plan["claims"]]

def called(node):
    """The name of what is called, of R.call_packed the packed function; nothing for what is no call."""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    packed = name.startswith("R.call_") and node.args and isinstance(node.args[0], ast.Constant)
    return node.args[0].value if packed else name

def smt(node):
    """An expression of TVMScript as a term."""
    match node:
        case ast.Constant(value=value): return str(value).lower()
        case ast.Name(id=name): return f"|{name}|"
        case ast.UnaryOp(op=ast.USub(), operand=inner): return f"(- {smt(inner)})"
        case ast.BinOp(ast.BinOp(top, ast.FloorDiv(), by), ast.Add(), ast.Constant(more)): return f"(div (+ {smt(top)} (* {more} {smt(by)})) {smt(by)})"
        case ast.BinOp(op=op, left=left, right=right) | ast.Compare(ops=[op], left=left, comparators=[right]): return f"({WORDS[type(op)]} {smt(left)} {smt(right)})"
        case ast.BoolOp(op=op, values=parts): return f"({WORDS[type(op)]} {' '.join(map(smt, parts))})"
        case ast.Call(args=[left, right]) if called(node) in CHOICES: return f"(let ((%a {smt(left)}) (%b {smt(right)})) (ite ({CHOICES[called(node)]} %a %b) %a %b))"
        case ast.Call(args=[inner]): return smt(inner)  # a cast
    return f"({CALLS[called(node)]} {' '.join(map(smt, node.args))})"

def paths(statements, taken):
    """The ways through some statements, and the sides that they take: an If is its test and the side."""
    ways = [([], taken)]
    for one in statements:
        if not isinstance(one, ast.If):
            ways = [([*steps, one], sides) for steps, sides in ways]
            continue
        test, before, ways = ast.unparse(one.test), ways, []
        for (steps, sides), side in [(way, side) for way in before for side in (True, False)]:
            if sides.get(test, side) == side:
                inner = paths(one.body if side else one.orelse, {**sides, test: side})
                ways += [([*steps, (one.test, side), *more], both) for more, both in inner]
        need(len(ways) <= 1024, "too many paths through the function")
    return ways

def names(node):
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}

def functions_in(path):
    """The functions of a module by name: each statement on a line of its own, without types."""
    text = ast.unparse(ast.parse(path.read_text(encoding="utf-8")))
    text = re.sub(r"(?m)^(\s*\w+): .*? = ", r"\1 = ", text)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    need(len(found) == len({one.name for one in found}), "two functions of one name")
    return {one.name: one for one in found}

def allocated(function):
    """The lines that put tensors on planned storages; nothing else uses a storage."""
    made = {"storage": [], "tensor": []}
    for node in ast.walk(function):
        made.get(called(getattr(node, "value", None)).removeprefix("R.memory.alloc_"), []).append(node)
    storages, on = [s.targets[0].id for s in made["storage"]], [s.value.args[0].id for s in made["tensor"]]
    uses = [node.id for node in ast.walk(function) if isinstance(node, ast.Name) and node.id in storages]
    need(sorted(uses) == sorted([*storages, *on]), "a storage is used by more than tensors on it")
    found = zip(made["tensor"], on, strict=True)
    return sorted(s.lineno for s, n in found if n.startswith("arena") or on.count(n) > 1)

def require_check(call, function):
    """What is asserted of the symbols that are passed."""
    passed, taken = [ast.unparse(one) for one in call.args[1:]], [one.arg for one in function.args.args]
    need(passed == taken and ".ret(" not in ast.unparse(function), f"{function.name} checks other values")
    return [smt(one.test) for one in function.body if isinstance(one, ast.Assert)]

def compare_with(plan, functions):
    """The function says what the index says: symbols, sizes, offsets, who is live with whom, guards."""
    function, where = functions[plan["function"]], f"`{plan['function']}`: "
    given = [function.args, *(node for node in ast.walk(function) if called(node) == "R.match_cast")]
    shapes = [c.args[0] for g in given for c in ast.walk(g) if called(c) == "R.Tensor" and c.args]
    extents = {e.id for s in shapes if isinstance(s, ast.Tuple) for e in s.elts if isinstance(e, ast.Name)}
    for name, (low, high) in plan["symbols"].items():
        free = low == -(2**63) or (low == 0 and name in extents)
        need(free and high == 2**63 - 1, f"{where}nothing limits {name} to {low}..{high}")
    def implied(assumed, claim, problem):
        need(answer(script(plan, [*assumed, f"(not {claim})"])) == "unsat", where + problem)
    placed = allocated(function)
    planned = [(n, b) for n, a in enumerate(plan["arenas"]) if not a["result"] for b in a["buffers"]]
    planned.sort(key=lambda one: one[1]["allocated"])
    need(len(placed) == len(planned), f"{where}{len(placed)} tensors are planned, {len(planned)} are listed")
    places, arenas = dict(zip(placed, planned, strict=True)), {}
    ways = paths(function.body, {})
    for steps, _ in ways:
        known, touched, held, reserved = {}, {}, [], {}
        for at, step in enumerate(steps):
            if isinstance(step, tuple):
                sized = names(step[0]) - {"T"} <= plan["symbols"].keys()
                held += [smt(step[0]) if step[1] else f"(not {smt(step[0])})"] if sized else []
                continue
            value, name = step.value, called(step.value)
            target = step.targets[0].id if isinstance(step, ast.Assign) else ""
            if name == "relax.run.assert_op":
                held.append(smt(value.args[1]))
            elif name in functions and not target:
                held += require_check(value, functions[name])
            elif name == "R.memory.alloc_storage":
                (extent,) = value.args[0].args[0].elts
                reserved[target] = step.lineno, extent, list(held)
            elif step.lineno in places:
                number, buffer = places[step.lineno]
                arena, (storage, offset, shape, dtype) = plan["arenas"][number], value.args[:4]
                line, size, checked = reserved[storage.id]
                fits = arenas.setdefault(line, number) == number and buffer["alignment"] % 64 == 0
                need(fits, f"{where}`{target}` is in another arena, or not aligned")
                implied([], f"(= {smt(offset)} {buffer['offset']})", f"`{target}` has another offset")
                bits, lanes = re.fullmatch(r"[a-z]+(\d*)\w*?(?:x(\d+))?", dtype.args[0].value).groups()
                extents = " ".join(map(smt, shape.args[0].elts))
                nbytes = f"(* {(int(bits or 8) * int(lanes or 1) + 7) // 8} 1 {extents})"
                implied([], f"(= {nbytes} {buffer['bytes']})", f"`{target}` has another number of bytes")
                implied([], f"(= {smt(size)} {arena['size']})", f"the arena of `{target}` has another size")
                for guard in plan["guards"]:
                    if guard["declared"] or guard["behind"] in (None, arena["behind"]):
                        implied(checked, guard["check"], f"nothing checks {guard['check']}")
                known[target] = {step.lineno}
            else:
                spoken = names(ast.Tuple(value.args) if name else value)
                used = {line for word in spoken for line in known.get(word, ())}
                if target and not re.match(FRESH, name):
                    known[target] = used
                if not target or name not in VIEWS:
                    touched.update({line: (touched.get(line, (at,))[0], at) for line in used})
        ends = {(at[k], places[line][1]["live"][k][k] + k) for line, at in touched.items() for k in (0, -1)}
        ordered = all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(sorted(ends)))
        need(ordered or len(ways) > 1, f"{where}live ranges are not those of the function")
        for (one, (a, b)), (other, (c, d)) in combinations(touched.items(), 2):
            (number, first), (another, second) = places[one], places[other]
            apart = number != another or max(a, c) > min(b, d) or together(first, second)
            need(apart, f"{where}`{first['name']}` and `{second['name']}` are live together")

def check(folder, module=None, *, packing):
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    need(index["version"] == 2 and index["machine"] != packing, "another version, or a packing problem")
    listed, functions = [], functions_in(module) if module else {}
    for plan in index["plans"]:
        listed += compare(plan, folder, index["machine"])
        if not packing:
            compare_with(plan, functions or functions_in(folder / plan["text"]))
    told = {plan["function"] for plan in index["plans"]}
    others = [name for name, one in functions.items() if name not in told and allocated(one)]
    need(told and not others, f"nothing is said of {others or 'any function'}")
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.smt2"))
    need(sorted(listed) == there, "scripts that no claim names, or that two name")
    return f"accepted: {len(listed)} claims about {', '.join(plan['function'] for plan in index['plans'])}"

if __name__ == "__main__":
    try:
        print(check(*(Path(a) for a in sys.argv[1:] if a != "--packing"), packing="--packing" in sys.argv))
    except Refused as refused:
        sys.exit(f"refused: {refused}")
    except Exception as error:
        print(f"cannot be read: {error!r}\n\n{__doc__}", file=sys.stderr)
        sys.exit(2)
