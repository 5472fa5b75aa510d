"""All processors at work, the long pieces first, with what is done on a line each."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

import store
from work import KEPT, TOOK, Report, Work, weight


@dataclass(slots=True)
class Crew:
    """Does pieces of work that are not done yet; results that are there already cost nothing."""

    until: float = float("inf")
    """On the clock of `time.monotonic`: nothing is begun after it, what was begun is finished."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    left: int = field(default=0, init=False)
    """Pieces that were not begun in time."""
    changed: bool = field(default=False, init=False)
    """Somebody edited the sources meanwhile: what was found is not all of the same state."""
    _began: float = field(default_factory=time.monotonic, init=False)

    def do(self, pieces: Iterable[Work], what: str) -> dict[Work, Report]:
        """The results; those not begun in time are missing."""
        store.remember()
        pieces = list(dict.fromkeys(pieces))
        found = {piece: kept for piece in pieces if (kept := store.load(piece.kept())) is not None}
        to_do = sorted((piece for piece in pieces if piece not in found), key=weight)
        self._say(f"{what}: {len(pieces)} pieces of work, {len(found)} known from before")
        if not to_do:
            return found
        begun, total = 0, len(to_do)
        # A fresh process after some pieces: a day of requests leaves a process of gigabytes behind.
        with ProcessPoolExecutor(self.workers, initializer=store.remember, max_tasks_per_child=40) as pool:
            running: dict[Future[Report], Work] = {}
            while to_do or running:
                while to_do and len(running) < self.workers and time.monotonic() < self.until:
                    piece = to_do.pop()
                    running[pool.submit(piece.done)] = piece
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    piece = running.pop(future)
                    found[piece] = future.result()
                    begun += 1
                    if found[piece][KEPT] != piece.kept().name:
                        self.changed = True
                    self._say(f"{begun:4d}/{total} {piece.slug}, {piece.name}: {found[piece][TOOK]:.1f} s")
        self.left += len(to_do)
        return found

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {what}", flush=True)
