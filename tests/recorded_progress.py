"""The progress of a job, recorded in tests."""

from dataclasses import dataclass, field


@dataclass
class RecordedProgress:
    """The phases of a job in order, and the passes of each phase by its index.

    A pass is a list: its total, and then each advance.
    """

    phases: list[str] = field(default_factory=list)
    passes: dict[int, list[list[int]]] = field(default_factory=dict)

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def rows(self, total: int) -> None:
        self.passes.setdefault(len(self.phases) - 1, []).append([total])

    def advance(self, rows: int) -> None:
        self.passes[len(self.phases) - 1][-1].append(rows)
