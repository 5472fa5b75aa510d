"""Text from outside, made fit to be shown: names, labels and messages that a stranger wrote."""

from __future__ import annotations


def plain(text: str, keep: str = "") -> str:
    """The text with what a terminal or a reader's eye would obey written as an escape: ESC as four letters.

    Controls, line ends, and marks that turn the direction of writing. `keep` are characters that are left as they are.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text)
