"""What a run on the emulator may be asked to hold and to compute, with the measurements behind the numbers."""

from __future__ import annotations

MIB = 1 << 20

# Inputs, state and outputs together. A block-reduction softmax over 1024 x 4096 floats (32 MiB in and out) takes 0.24 s
# in the emulator; on twice that the fp64 reference takes 0.3 s and inspection 3.3 s on two busy cores. Plan `standard`
# runs a task about 40 times: 64 MiB is where it leaves tens of seconds and becomes minutes.
EMULATOR_BYTES = 64 * MIB

# Counted operations of one call. The emulator does about 3e8 multiply-adds a second (tiled matmul of 256^3 in 0.1 s):
# 2e9 operations are the most that one run finishes in a few seconds.
EMULATOR_OPERATIONS = 2_000_000_000
