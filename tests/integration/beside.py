"""What goes on in a thread beside a test."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Beside:
    """`_run` in a thread of its own while the context lasts. It returns soon after `_over` is set."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError
