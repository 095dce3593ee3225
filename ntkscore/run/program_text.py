"""What a compiled program does, read from the text that XLA prints of it."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_ARRAY = re.compile(r"\b([a-z]+)(\d*)\w*\[([\d,]*)\]")
_CALLED = re.compile(
    r"(?:body|calls|to_apply|true_computation|false_computation|branch_computations)="
    r"(\{[^}]*\}|%[\w.\-]+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"}
_STARTED = ("-done", "-update")
"""Ends of the names of operations that were counted when they were started."""


class _Instruction(NamedTuple):
    name: str
    type: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """The names of its inputs."""
        return re.findall(r"%([\w.\-]+)", self.rest.split(")")[0])

    @property
    def called(self) -> list[str]:
        """The computations that it runs."""
        found = (name for names in _CALLED.findall(self.rest) for name in names.split(","))
        return [name.strip(" {}%") for name in found]


def parse(text: str) -> tuple[tuple[int, int], list[int]]:
    """What a compiled program does, of branches the one that moves most.

    Returns:
        Operations that a device starts one by one, and bytes that they read and write; and how
        often each loop runs, 0 where only the numbers decide.

    Example:
        >>> text = '''ENTRY %main (a: f32[2,3]) -> f32[2] {
        ...   %a = f32[2,3]{1,0} parameter(0)
        ...   ROOT %sum = f32[2]{0} fusion(%a), kind=kInput, calls=%fused
        ... }'''
        >>> parse(text)
        ((1, 32), [])
    """
    computations, entry = _parsed(text)
    every = (each for instructions in computations.values() for each in instructions)
    trips = [_trips(each, computations) for each in every if each.operation == "while"]

    @cache
    def work(name: str) -> Int[np.ndarray, "2"]:
        total = np.zeros(2, int)
        instructions = computations.get(name, [])
        sizes = {each.name: _bytes(each.type) for each in instructions}
        for each in instructions:
            if each.operation in _FREE or each.operation.endswith(_STARTED):
                continue
            if each.operation == "conditional":
                total += max(map(work, each.called), key=lambda w: w[1], default=0)
            elif each.operation == "while":
                total += (_trips(each, computations) or 1) * sum(map(work, each.called))
            elif each.operation == "call":
                total += sum(map(work, each.called))
            else:
                total += 1, _moved(each, sizes, computations)
        return total

    launches, moved = work(entry).tolist()
    return (launches, moved), trips


def _trips(loop: _Instruction, computations: Mapping[str, Sequence[_Instruction]]) -> int:
    """How often a loop runs, 0 if unknown: as XLA says, or the one number that it compares with."""
    if known := _TRIPS.search(loop.rest):
        return int(known[1])
    condition = re.search(r"condition=%?([\w.\-]+)", loop.rest)
    inside = computations.get(condition[1], []) if condition else []
    numbers = [
        int(one.rest.split(")")[0])
        for one in inside
        if one.operation == "constant" and one.type.startswith("s32[]")
    ]
    return numbers[0] if len(numbers) == 1 else 0


def _moved(
    each: _Instruction,
    sizes: Mapping[str, int],
    computations: Mapping[str, Sequence[_Instruction]],
) -> int:
    """Bytes that an operation reads and writes; of an array that it slices, the slices alone."""
    if each.operation == "dynamic-slice":
        return 2 * sizes[each.name]
    if each.operation == "dynamic-update-slice":
        return 2 * sizes.get(each.operands[1], 0)
    written, reads = sizes[each.name], [sizes.get(name, 0) for name in each.operands]
    if each.operation == "custom-call":
        # The first result is the library's; others are its room to work in.
        written = _bytes(each.type.lstrip("(").split(" ")[0])
    if each.operation == "fusion":
        inside = computations.get(each.called[0], [])
        inner = {one.name: _bytes(one.type) for one in inside}
        parameters = [one for one in inside if one.operation == "parameter"]
        for parameter, place in ((one.name, int(one.rest.split(")")[0])) for one in parameters):
            users = [one for one in inside if parameter in one.operands]
            sliced = [
                one.operation == "dynamic-slice" and one.operands[0] == parameter for one in users
            ]
            if sliced and all(sliced):
                reads[place] = sum(inner[one.name] for one in users)
            for one in users:
                if one.operation == "dynamic-update-slice" and one.operands[0] == parameter:
                    # Written in place: what stays is neither read nor written.
                    update = inner.get(one.operands[1], 0)
                    written += update - inner[one.name]
                    reads[place] -= inner[parameter]
    return max(written, 0) + sum(max(size, 0) for size in reads)


def _parsed(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """Instructions by computation, and the name of the first computation to run."""
    computations: dict[str, list[_Instruction]] = {}
    entry = name = ""
    for line in text.splitlines():
        if heading := _COMPUTATION.match(line):
            name = heading[1]
            computations[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name and (found := _INSTRUCTION.match(line)):
            computations[name].append(_Instruction(*found.groups()))
    return computations, entry


def _bytes(type: str) -> int:
    """Bytes of an array or of a tuple of arrays."""
    total = 0
    for kind, bits, sides in _ARRAY.findall(type):
        size = 1 if kind == "pred" else int(bits or 0) / 8
        total += int(size * prod(int(side) for side in sides.split(",") if side))
    return total
