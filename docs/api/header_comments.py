"""Doxygen's input filter: gives the plain comments of a header the form that Doxygen reads.

In our headers a comment speaks of the declaration below it and often of those that follow without a blank line: overloads
get the same text, others a pointer to it. A comment behind a declaration belongs to that one, and an option of a config is
described once, in its struct's list of fields. Lines stay where they are, so that warnings name the right ones.
"""

import re
import sys

COMMENT = re.compile(r"^(\s*)//( ?)(.*)$")
TRAILING = re.compile(r"^(\s*[^\s}].*[;,{])\s+// ?(.*)$")
FIELD = re.compile(r'field\(\s*"\w+",\s*&(\w+)::(\w+),\s*\{\s*\.doc\s*=\s*((?:"[^"]*"\s*)+)')
STRUCT = re.compile(r"^(?:struct|class)\s+(?:KINDLING_API\s+)?(\w+)")
OPTIONS = re.compile(r"^struct (\w+)Options \{")
MEMBER = re.compile(r"^\s+[\w:<>, ]+ (\w+)( = .*|\{.*\})?;$")
# Nothing that a reader looks up; `fields` repeats the members.
NAME = re.compile(r"([\w:]+|operator\S+)\s*(?:\(|=|\{|;|$)")
UNTOLD = re.compile(r"=\s*delete;$|^\s*(virtual )?~\w+\(\)|^\s*static constexpr auto fields\b")


def field_docs(text):
    """(struct, member) → what its list of fields says about it."""
    return {(match[1], match[2]): "".join(re.findall(r'"([^"]*)"', match[3])) for match in FIELD.finditer(text)}


def escaped(text):
    """Doxygen takes these for commands, except where it takes the text for a quotation."""
    parts = re.split(r'("[^"]*"|`[^`]*`)', text)
    return "".join(part if part.startswith(('"', "`")) else re.sub(r"([\\@<>#|])", r"\\\1", part) for part in parts)


def doc_line(comment):
    """One line of a comment for Doxygen: indented by three columns or more it is code."""
    return f"///     {comment}" if comment.startswith("  ") else f"/// {escaped(comment)}".rstrip()


def name_of(declaration):
    """The name that a declaration gives, as far as its first line tells."""
    match = NAME.search(re.sub(r"^.*\(\*(\w+)\)", r"\1", declaration))
    return match[1] if match else declaration.split()[-1]


class Filter:
    def __init__(self, text):
        self.lines = text.splitlines()
        self.text = text
        self.docs = field_docs(text)
        self.struct = None
        self.group = None  # the comment of the declarations that are being read, and their indentation
        self.out = []

    def run(self):
        at = 0
        while at < len(self.lines):
            at = self.block(at) if COMMENT.match(self.lines[at]) else self.code(at)
        return "\n".join(self.out) + "\n"

    def block(self, start):
        end = start
        while end < len(self.lines) and COMMENT.match(self.lines[end]):
            end += 1
        lines = self.lines[start:end]
        following = self.lines[end].strip() if end < len(self.lines) else ""
        if following and not following.startswith(("}", "#", "public:", "private:", "protected:")):
            comment = [doc_line(COMMENT.match(line)[3]) for line in lines]
            if following.startswith("namespace"):
                self.out[-1] = "/// @file"  # an empty line before
            else:
                self.group = (comment, len(self.lines[end]) - len(self.lines[end].lstrip()), end)
            lines = comment
        self.out += lines
        return end

    def code(self, at):
        line = self.lines[at]
        struct = STRUCT.match(line)
        if struct:
            self.struct = struct[1]
        if not line.strip() or line.lstrip().startswith("}"):
            self.group = None
        trailing = TRAILING.match(line)
        if UNTOLD.search(line):
            return self.untold(at)
        if trailing:
            doc = escaped(trailing[2])
            line = f"/** {doc} */ {trailing[1]}" if trailing[1].startswith("enum") else f"{trailing[1]}  ///< {doc}"
        elif self.group and at > self.group[2] and self.begins_declaration(at):
            line = f"/** {self.doc_of_follower(line)} */ {line}"
        elif not self.group or at > self.group[2]:
            line = self.with_obvious_doc(line)
        self.out.append(line)
        return at + 1

    def begins_declaration(self, at):
        line, before = self.lines[at], self.lines[at - 1].split(" //")[0].rstrip()
        return len(line) - len(line.lstrip()) == self.group[1] and before.endswith((";", "}"))

    def doc_of_follower(self, line):
        first = name_of(self.lines[self.group[2]])
        if first == name_of(line):
            return " ".join(part[4:] for part in self.group[0])
        return f"See {first}{'()' if '(' in self.lines[self.group[2]] else ''}."

    def product_of(self, name):
        """What XOptions are for: the class X, or the function that is called like it."""
        function = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
        return f"{function}()" if f" {function}(" in self.text else name

    def with_obvious_doc(self, line):
        options = OPTIONS.match(line)
        if options:
            return f"/** Options of {self.product_of(options[1])}. */ {line}"
        member = MEMBER.match(line)
        doc = self.docs.get((self.struct, member[1])) if member else None
        return f"{line}  ///< {escaped(doc)}" if doc else line

    def untold(self, at):
        """Leaves a statement out, to its end."""
        while True:
            line = self.lines[at]
            self.out.append("")
            at += 1
            if line.split(" //")[0].rstrip().endswith((";", "}")) or at == len(self.lines):
                return at


def of_c(text):
    """The same for a header of C, whose comments are /* … */; the first one, about the file, stays as it is."""
    about, separator, rest = text.partition("\n\n")
    return about + separator + re.sub(r"^/\* (?!---)", "/** ", rest, flags=re.MULTILINE)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        source = header.read()
    sys.stdout.write(of_c(source) if source.startswith("/*") else Filter(source).run())
