"""A picture of the chat for the documentation: docs/pictures/chat.svg.

Drives `hermod` in tmux with a scripted model, and writes what is seen as SVG, with its colours: a streamed answer with code, a tool
call with its output, a diff, and a call that waits for an approval. Text stays text; no font is embedded.
"""

import os
import pathlib
import re
import shutil
import sys
import unicodedata
from xml.sax.saxutils import escape

from chat import Tmux
from common import Drill, Service

COLUMNS, ROWS = 100, 32
PICTURE = pathlib.Path(__file__).resolve().parent.parent / "docs/pictures/chat.svg"
MAX_BYTES = 60_000

PROGRAM = "fn median(times: &mut [f64]) -> f64 {\n    times.sort_by(f64::total_cmp);\n    times[times.len() / 2]\n}\n"
TESTS = "#!/bin/sh\nprintf 'running 3 tests\\ntest sorts_first ... ok\\ntest of_one ... ok\\ntest of_none ... FAILED\\n'\nexit 101\n"
SCRIPTS = [
    {"when": "panic", "steps": [
        {"say": "I run the tests first.", "call": [{"tool": "shell", "arguments": {"command": "./run-tests"}}]},
        {"say": "`median` indexes an **empty** slice. It should return an `Option`:\n\n```rust\nlet middle = times.get(times.len() / 2)?; // `None` if it is empty\n```",
         "call": [{"tool": "edit_file", "arguments": {"path": "median.rs", "edits": [
             {"old": "-> f64 {", "new": "-> Option<f64> {"},
             {"old": "    times[times.len() / 2]", "new": "    times.get(times.len() / 2).copied()"}]}}]},
        {"say": "The fix is in. I publish it as you asked.", "call": [{"tool": "shell", "arguments": {"command": "git push --force origin main"}}]},
        {"say": "Done."}]},
]

# The colours of a dark terminal, by their number.
COLOURS = ["#1c1f26", "#f07178", "#a5d6a7", "#e6c07b", "#82aaff", "#c792ea", "#89ddff", "#d6deeb",
           "#637777", "#ff8b92", "#c3e8a8", "#ffd580", "#a2c4ff", "#ddb3ff", "#a8eaff", "#ffffff"]
TEXT, GROUND, DIM = "#d6deeb", "#14171d", 0.6
CELL, LINE, FONT, MARGIN, BAR = 8.43, 18, 14, 16, 34


class Style:
    """What the escape sequences before a cell have set."""

    def __init__(self):
        self.colour, self.ground, self.marks = None, None, frozenset()

    def key(self):
        return self.colour, self.ground, self.marks

    def set(self, codes):
        """Takes the numbers of a sequence `ESC [ … m`."""
        codes = [int(code or 0) for code in re.split("[;:]", codes)] or [0]
        names = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse"}
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.__init__()
            elif code in names:
                self.marks |= {names[code]}
            elif code == 22:
                self.marks -= {"bold", "dim"}
            elif code in (23, 24, 27):
                self.marks -= {names[code - 20]}
            elif code in (38, 48):
                colour = self.extended(codes)
                if code == 38:
                    self.colour = colour
                else:
                    self.ground = colour
            elif code in (39, 49):
                setattr(self, "colour" if code == 39 else "ground", None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.colour = COLOURS[code - 30 if code < 90 else code - 82]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.ground = COLOURS[code - 40 if code < 100 else code - 92]

    @staticmethod
    def extended(codes):
        if codes[:1] == [2]:
            _, red, green, blue = codes[:4]
            del codes[:4]
            return f"#{red:02x}{green:02x}{blue:02x}"
        number = codes[1] if len(codes) > 1 else 7
        del codes[:2]
        if number < 16:
            return COLOURS[number]
        if number >= 232:
            return "#" + f"{8 + (number - 232) * 10:02x}" * 3
        steps = [0, 95, 135, 175, 215, 255]
        red, green, blue = (number - 16) // 36, (number - 16) // 6 % 6, (number - 16) % 6
        return f"#{steps[red]:02x}{steps[green]:02x}{steps[blue]:02x}"


def columns(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def runs(line, style):
    """The texts of a line that have one style each, with the column at which each begins."""
    column = 0
    for piece in re.split(r"(\x1b\[[0-9;:]*m)", line):
        if piece.startswith("\x1b["):
            style.set(piece[2:-1])
        elif piece:
            yield column, piece, style.key()
            column += columns(piece)


def svg(captured, title):
    width, height = round(COLUMNS * CELL + 2 * MARGIN), BAR + ROWS * LINE + MARGIN
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">',
             f'<rect width="{width}" height="{height}" rx="10" fill="{GROUND}"/>']
    parts += [f'<circle cx="{20 + n * 18}" cy="17" r="5.5" fill="{colour}"/>' for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))]
    parts.append(f'<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,\'DejaVu Sans Mono\',monospace" font-size="{FONT}" fill="{TEXT}">')
    style = Style()
    for row, line in enumerate(captured.split("\n")[:ROWS]):
        y = BAR + row * LINE
        for column, text, (colour, ground, marks) in runs(line, style):
            colour, ground = colour or TEXT, ground
            if "reverse" in marks:
                colour, ground = ground or GROUND, colour
            x, length = MARGIN + column * CELL, columns(text) * CELL
            if ground:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="{LINE}" fill="{ground}"/>')
            if not text.strip():
                continue
            # Spaces at the ends of a text, and several in a row, would collapse.
            shown = escape(text).replace(" ", "\u00a0")
            looks = "".join([
                f' fill="{colour}"' if colour != TEXT else "",
                ' font-weight="700"' if "bold" in marks else "",
                ' font-style="italic"' if "italic" in marks else "",
                ' text-decoration="underline"' if "underline" in marks else "",
                f' fill-opacity="{DIM}"' if "dim" in marks else "",
            ])
            parts.append(f'<text x="{x:.1f}" y="{y + 13}" textLength="{length:.1f}"{looks}>{shown}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


class Window(Tmux):
    """A terminal of the size of the picture."""

    def open(self, *arguments):
        super().open(*arguments)
        self.run("resize-window", "-x", str(COLUMNS), "-y", str(ROWS))


def capture(service, folder):
    (service.work / "median.rs").write_text(PROGRAM)
    tests = service.work / "run-tests"
    tests.write_text(TESTS)
    tests.chmod(0o755)
    window = Window(service, folder)
    window.open()
    try:
        window.shows("new conversation", "picture-new")
        window.press("The median panics on an empty list. Fix it, and push it.", "Enter")
        window.shows("n deny", "picture")
        return window.run("capture-pane", "-e", "-p")
    finally:
        window.close()


def main():
    drill = Drill(__doc__)
    if not shutil.which("tmux"):
        sys.exit("tmux is not installed")
    folder = pathlib.Path("target/chat-captures")
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["LC_ALL"] = "C.UTF-8"
    with Service(drill.options.binary, 'approvals.approver = "person"\n', SCRIPTS, LC_ALL="C.UTF-8", TERM="xterm-256color") as service:
        captured = capture(service, folder)
    picture = svg(captured, "The chat of Hermod: an answer with code, a tool call, a diff, and an approval")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture)
    drill.counts["bytes"] = len(picture.encode())
    drill.check(drill.counts["bytes"] <= MAX_BYTES, f"the picture has more than {MAX_BYTES} bytes")
    for part in ("FAILED", "Option", "deny"):
        drill.check(part in picture, f"the picture does not show `{part}`")
    drill.end()


if __name__ == "__main__":
    main()
