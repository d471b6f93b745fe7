"""Charts as text: SVG that carries its own words, and takes its colours from the page's style sheet.

Only what the report needs: a curve over measurements, a cloud of points, and bars. Every mark has a title,
which browsers show on hovering, so that a figure can be read off without a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 460, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 14, 40
_MOST_DOTS = 1500
_LEAST_RANGE = 1.5
"""Of a logarithmic axis, from its lower end to its upper."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a chart with what is said of it."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels along one axis; logarithmic if asked for."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Pixel of a value; values beyond the ends stay at the ends."""
        low, high, value = (self._map(v) for v in (self.low, self.high, value))
        share = 0.0 if high <= low else (value - low) / (high - low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def _map(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values between the ends."""
        if self.log and self.high >= 10 * self.low:
            return self._log_ticks(count)
        step = nice_step((self.high - self.low) / max(1, count))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def _log_ticks(self, count: int) -> list[float]:
        """Powers of ten between the ends, which are a decade apart, and values between if there is room."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside: list[float] = []
        for factors in ((1, 2, 5), (1, 3), (1,)):
            values = [factor * 10.0**decade for decade in decades for factor in factors]
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= count + 2:
                break
        return inside[:: max(1, math.ceil(len(inside) / (count + 2)))]


def nice_step(step: float) -> float:
    """Round up to 1, 2, 2.5 or 5 times a power of ten."""
    if step <= 0 or not math.isfinite(step):
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * (1 - 1e-9))


@dataclass(frozen=True)
class Curve:
    """
    A chart of measurements against trials or time.

    Attributes
    ----------
    steps
        Corners of the best-so-far line: it goes level from each to the next, and on to the chart's end.
    dots
        Single measurements.
    failures
        Failed ones; their `y` does not matter.
    """

    title: str
    x_label: str
    y_label: str
    steps: Sequence[Mark]
    dots: Sequence[Mark] = ()
    failures: Sequence[Mark] = ()
    log: bool = False
    x_end: float | None = None
    x_text: Callable[[float], str] = field(default=lambda value: number_text(value))
    y_text: Callable[[float], str] = field(default=lambda value: number_text(value))

    def to_svg(self) -> str:
        """Draw it."""
        everything = [*self.steps, *self.dots]
        x_high = self.x_end or max([mark.x for mark in [*everything, *self.failures]], default=1.0)
        x = Scale(0.0, x_high or 1.0, _LEFT, WIDTH - _RIGHT)
        y = self._y_scale([mark.y for mark in everything])
        parts = [_grid(x, y, self.x_label, self.y_label, self.x_text, self.y_text)]
        parts += [_circle("dot", x.at(m.x), y.at(m.y), 2.5, m.title) for m in thinned(self.dots)]
        floor = HEIGHT - _BOTTOM
        parts += [
            f'<path class="failure" d="M{x.at(m.x):.1f} {floor}v-7">{_title(m.title)}</path>'
            for m in thinned(self.failures)
        ]
        if self.steps:
            parts.append(self._line(x, y, x_high))
        return _svg(self.title, parts)

    def _y_scale(self, values: Sequence[float]) -> Scale:
        if self.log:
            low, high = min(values, default=1.0), max(values, default=10.0)
            spread = max(1.15, math.sqrt(_LEAST_RANGE * low / high))
            return Scale(low / spread, high * spread, HEIGHT - _BOTTOM, _TOP, log=True)
        return Scale(0.0, max(values, default=0.0) * 1.08 or 1.0, HEIGHT - _BOTTOM, _TOP)

    def _line(self, x: Scale, y: Scale, x_high: float) -> str:
        first, *rest = self.steps
        path = [f"M{x.at(first.x):.1f} {y.at(first.y):.1f}"]
        path += [f"H{x.at(mark.x):.1f}V{y.at(mark.y):.1f}" for mark in rest]
        path.append(f"H{x.at(x_high):.1f}")
        corners = "".join(_circle("corner", x.at(m.x), y.at(m.y), 4, m.title) for m in self.steps)
        return f'<path class="best" d="{"".join(path)}"/>{corners}'


def cloud(title: str, x_label: str, y_label: str, dots: Sequence[Mark]) -> str:
    """Draw single points, each axis from the least to the greatest value."""
    xs, ys = [mark.x for mark in dots], [mark.y for mark in dots]
    margin = 0.04 * ((max(xs) - min(xs)) or 1.0)
    x = Scale(min(xs) - margin, max(xs) + margin, _LEFT, WIDTH - _RIGHT)
    y = Scale(0.0, max(ys) * 1.05 or 1.0, HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(x, y, x_label, y_label, number_text, number_text)]
    parts += [_circle("point", x.at(m.x), y.at(m.y), 3, m.title) for m in thinned(dots)]
    return _svg(title, parts)


def bars(title: str, rows: Sequence[tuple[str, float, str, str]]) -> str:
    """Draw one horizontal bar per row: label, value, the value in words, and the style class."""
    left, pitch, top = 160, 30, 6
    high = max((row[1] for row in rows), default=0.0) or 1.0
    room = WIDTH - left - 92
    parts = []
    for number, (label, value, words, style) in enumerate(rows):
        y, width = top + number * pitch, max(2.0, room * value / high)
        parts += [
            _text("label", left - 8, y + 15, label, "end"),
            _bar(style, left, y + 2, width, 18, f"{label}: {words}"),
            _text("value", left + width + 6, y + 15, words),
        ]
    return _svg(title, parts, top * 2 + pitch * max(1, len(rows)))


def stack(title: str, rows: Sequence[tuple[str, float, str, str]]) -> str:
    """Draw one bar divided in proportion, with a legend below: label, value, words, style class."""
    total = sum(row[1] for row in rows) or 1.0
    left, room, gap = 4.0, WIDTH - 8.0, 2.0
    parts, at = [], left
    for label, value, words, style in rows:
        width = room * value / total
        if width > gap:
            parts.append(_bar(style, at, 6, width - gap, 26, f"{label}: {words}"))
        at += width
    for number, (label, _, words, style) in enumerate(rows):
        y = 48 + 24 * number
        parts += [
            _bar(style, 4, y, 12, 12, label),
            _text("label", 24, y + 11, label),
            _text("value", WIDTH - 4, y + 11, words, "end"),
        ]
    return _svg(title, parts, 52 + 24 * len(rows))


def number_text(value: float) -> str:
    """Write a tick without needless zeros: 0, 0.05, 12.5, 2000, 1e+09."""
    return f"{value:.6g}"


def thinned(marks: Sequence[Mark]) -> Sequence[Mark]:
    """At most `_MOST_DOTS` of the marks, evenly chosen, so that a page of a long log stays small."""
    return marks if len(marks) <= _MOST_DOTS else marks[:: math.ceil(len(marks) / _MOST_DOTS)]


def _grid(
    x: Scale,
    y: Scale,
    x_label: str,
    y_label: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
) -> str:
    """Axes: level lines, ticks in words, and what is measured."""
    floor, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    levels = [(value, y.at(value)) for value in y.ticks()]
    middle = f"translate(13 {(_TOP + floor) / 2:.0f}) rotate(-90)"
    parts = [
        *(f'<path class="grid" d="M{_LEFT} {at:.1f}H{right}"/>' for _, at in levels),
        *(_text("tick", _LEFT - 6, at + 4, y_text(value), "end") for value, at in levels),
        f'<path class="axis" d="M{_LEFT} {floor}H{right}"/>',
        *(_text("tick", x.at(value), floor + 16, x_text(value), "middle") for value in x.ticks()),
        _text("label", (_LEFT + right) / 2, HEIGHT - 6, x_label, "middle"),
        f'<g transform="{middle}">{_text("label", 0, 0, y_label, "middle")}</g>',
    ]
    return "".join(parts)


def _svg(title: str, parts: Sequence[str], height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _circle(style: str, x: float, y: float, radius: float, title: str) -> str:
    return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{_title(title)}</circle>'


def _bar(style: str, x: float, y: float, width: float, height: float, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"'
    return f'<rect class="bar {style}" {place} rx="3">{_title(title)}</rect>'


def _text(style: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>"
