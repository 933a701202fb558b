"""The tool `calculator`: arithmetic, exact on whole numbers and fractions of them.

Covers: + - * / // % ** and parentheses, functions of `math`, comparisons (an equation is checked). Leaves out: units,
symbols, anything that is not an expression of numbers.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from assay_serving.tools.tool import ToolError

LONGEST = 1000  #: characters of an expression
DIGITS = 4000  #: of a power
_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a, b) if isinstance(a, int | Fraction) and isinstance(b, int | Fraction) else a / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "min": min, "max": max, "round": round, "sqrt": math.sqrt, "exp": math.exp, "log": math.log,
    "sin": math.sin, "cos": math.cos, "tan": math.tan, "floor": math.floor, "ceil": math.ceil, "gcd": math.gcd,
}  # fmt: skip
_CALL, _THOUSANDS = re.compile(r"[a-z]\("), re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_CONSTANTS = {"pi": math.pi, "e": math.e}


class Calculator:
    name: ClassVar[str] = "calculator"
    description: ClassVar[str] = "Computes an arithmetic expression, or checks an equation such as 3 * 14 == 42."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"expression": {"type": "string", "description": "for example (2 + 3) * 4 / 5"}},
        "required": ["expression"],
    }
    repeatable: ClassVar[bool] = True

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Raises ToolError for what is no expression of numbers."""
        return calculate(arguments["expression"])


def calculate(expression: str) -> str:
    """The value: a whole number as it is, others to 12 digits; `true` or `false` of a comparison. A single `=` compares
    and `^` raises to a power. Raises ToolError."""
    if len(expression) > LONGEST:
        raise ToolError(f"an expression has at most {LONGEST} characters")
    text = expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/")
    if not _CALL.search(text):
        text = _THOUSANDS.sub("", text)
    if "=" in text and not any(sign in text for sign in ("==", "<=", ">=", "!=")):
        text = text.replace("=", "==")
    try:
        tree = ast.parse(text, mode="eval")
        return _text(_value(tree.body))
    except ToolError:
        raise
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(f"{expression!r} is no arithmetic expression") from None
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except ArithmeticError as error:
        raise ToolError(str(error)) from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # Decimals are exact fractions, so that 0.1 + 0.2 is 0.3.
            return number if isinstance(number, int) or not math.isfinite(number) else Fraction(repr(number))
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return -_value(operand) if isinstance(sign, ast.USub) else _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            values = [_value(left), *map(_value, others)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, arguments))
    raise ToolError("only numbers, + - * / // % **, comparisons and " + ", ".join(_FUNCTIONS))


def _power(base: Any, exponent: Any) -> Any:
    size = math.log10(float(abs(base)) + 1) * float(abs(exponent))
    if isinstance(base, int | Fraction) and size > DIGITS:
        raise ToolError("the power is too large")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        exponent = exponent.numerator
    power = base**exponent
    if isinstance(power, complex):
        raise ToolError("the result is no real number")
    return power


def _text(number: Any) -> str:
    if isinstance(number, bool):
        return str(number).lower()
    if isinstance(number, Fraction) and number.denominator == 1:
        number = number.numerator
    if isinstance(number, int):
        try:
            return str(number)
        except ValueError:
            raise ToolError("the result has too many digits") from None
    return f"{float(number):.12g}"
