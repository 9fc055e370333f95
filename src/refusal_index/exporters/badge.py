"""A gate's verdict as a badge: one SVG that needs nothing else, its words readable without its colour."""

from __future__ import annotations

from jinja2 import Environment

from refusal_index.outcomes.draws import CORRECTED, INDEX
from refusal_index.outcomes.gate import GateResult

LABEL = "Refusal Index"

COLOURS = {"pass": "#1a7f37", "fail": "#b42318", "inconclusive": "#6b5900"}
"""White text on each has a contrast of 4.5 to 1 or more."""

CHARACTER, PADDING, HEIGHT = 6.6, 6.0, 20
"""Width of a character of the font in the badge, at 11 pixels, the space on either side, and the height."""

TEMPLATE = Environment(autoescape=True).from_string("""\
<svg xmlns="http://www.w3.org/2000/svg" width="{{ width }}" height="{{ height }}" role="img" aria-label="{{ title }}">
<title>{{ title }}</title>
<rect width="{{ width }}" height="{{ height }}" rx="3" fill="#3d444d"/>
<path d="M{{ left }} 0h{{ right - 3 }}a3 3 0 0 1 3 3v{{ height - 6 }}a3 3 0 0 1-3 3h-{{ right - 3 }}z" \
fill="{{ colour }}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
{% for one in words -%}
<text x="{{ one.middle }}" y="14" textLength="{{ one.length }}">{{ one.text }}</text>
{% endfor -%}
</g>
</svg>
""")


def to_badge(found: GateResult) -> str:
    """Return the SVG: the verdict, and the candidate's index where it is guarded and has one."""
    index = next((one.named for one in found.guards if one.named.guard.name in (INDEX, CORRECTED)), None)
    known = "" if index is None or index.candidate is None else f"{index.candidate:.2f} "
    said = f"{known}{found.verdict}"
    left, right = (round(len(text) * CHARACTER + 2 * PADDING, 1) for text in (LABEL, said))
    words = (
        {"text": LABEL, "middle": round(left / 2, 1), "length": round(left - 2 * PADDING, 1)},
        {"text": said, "middle": round(left + right / 2, 1), "length": round(right - 2 * PADDING, 1)},
    )
    return TEMPLATE.render(
        title=f"{LABEL}: {said}",
        width=round(left + right, 1),
        height=HEIGHT,
        left=left,
        right=right,
        colour=COLOURS[found.verdict],
        words=words,
    )
