"""A trace as bars of text. Pure: a trace and a width in, lines out."""

from gpuyard.results import Step, Trace

MIN_BAR = 10


def draw(trace: Trace, *, width: int, is_utf8: bool = True) -> list[str]:
    """The lines: one for each step, its bar from cause to event to the trace's scale. None is wider than `width` (at least 60)."""
    if not trace.steps:
        return ["nothing is known of this job's way yet"]
    labels = [_label(step) for step in trace.steps]
    room = max(width, 60)
    label_width = min(max(map(len, labels)), room - MIN_BAR - 14)
    bar_width = room - label_width - 14
    head = f"trace {trace.trace_id or '-'}: {show_ms(trace.total_ms)}" + ("" if trace.is_complete else ", not over yet")
    lines = [head[:room]]
    for label, step in zip(labels, trace.steps, strict=True):
        name = label if len(label) <= label_width else label[: label_width - 1] + "~"
        lines.append(f"{name:<{label_width}}  {_bar(step, trace.total_ms, bar_width, is_utf8)}  {show_ms(step.duration_ms):>10}".rstrip())
    return lines


def _label(step: Step) -> str:
    more = [f"rank {step.rank}"] if step.rank is not None else []
    more += [step.reason] if step.reason else []
    return f"{step.service} {step.name}" + (f" ({', '.join(more)})" if more else "")


def _bar(step: Step, total_ms: float, width: int, is_utf8: bool) -> str:
    full, mark = ("█", "▏") if is_utf8 else ("#", "|")
    scale = width / total_ms if total_ms > 0 else 0.0
    start = min(int(step.offset_ms * scale), width - 1)
    size = min(int(step.duration_ms * scale), width - start)
    return (" " * start + (full * size or mark)).ljust(width)


def show_ms(duration: float) -> str:
    """Milliseconds for people: ``0.8 ms``, ``312 ms``, ``4.31 s``."""
    if duration >= 1000:
        return f"{duration / 1000:.2f} s"
    return f"{duration:.0f} ms" if duration >= 10 else f"{duration:.1f} ms"
