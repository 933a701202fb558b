"""The tool `calculator`: arithmetic, exact on whole numbers, decimals and fractions of them.

Covers: + - * / // % ** and parentheses, a few functions, comparisons (an equation is checked). Leaves out: units,
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
_Operators = Mapping[type, Callable[[Any, Any], Any]]
_BINARY: _Operators = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: Fraction(a, b) if isinstance(a, int) and isinstance(b, int) else a / b,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda a, b: _power(a, b),
}
_COMPARE: _Operators = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "round": lambda *arguments: _round(*arguments),
    "sqrt": math.sqrt,
    "floor": math.floor,
    "ceil": math.ceil,
}
_ALLOWED = "only numbers, + - * / // % **, comparisons and " + ", ".join(_FUNCTIONS)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


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
    text = re.sub(r"(?<![=<>!])=(?!=)", "==", expression.strip().replace("^", "**"))
    try:
        computed = _value(ast.parse(text if "(" in text else _THOUSANDS.sub("", text), mode="eval").body)
        if isinstance(computed, bool):
            return str(computed).lower()
        whole_number = isinstance(computed, int | Fraction) and computed == int(computed)
        return str(int(computed)) if whole_number else f"{float(computed):.12g}"
    except ArithmeticError:
        raise ToolError("division by zero, or a number that is too large") from None
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(f"{expression!r} is no arithmetic expression; {_ALLOWED}") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Constant(value=float() as number):  # an exact fraction, so that 0.1 + 0.2 is 0.3
            return Fraction(repr(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left), _value(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(_value, arguments))
    raise ToolError(_ALLOWED)


def _round(number: Any, places: Any = 0) -> Any:
    if abs(places) > DIGITS:
        raise ToolError(f"rounds to at most {DIGITS} places")
    return round(number, places)


def _power(base: Any, exponent: Any) -> Any:
    # Of a fraction both parts grow, however close to 1 it is: beyond the limit it is rounded.
    bits = max(part.bit_length() for part in base.as_integer_ratio())
    if abs(float(exponent)) * bits * math.log10(2) > DIGITS:
        if isinstance(base, int):
            raise ToolError("the power is too large")
        base, exponent = float(base), float(exponent)
    power = base**exponent
    if isinstance(power, complex):
        raise ToolError("the result is no real number")
    return power
