"""Every constant of the search strategies, each with its source: published, or ours where nothing was published."""

from __future__ import annotations

import math

# KernelOPT: beam search.
BEAM = 4
ITERATIONS = 5
PLANS = 4  # children of each node of the beam in one iteration
RETRIES = 4  # repairs of one failed attempt, at most
STALE_ITERATIONS = 2  # without gain: stop
# KernelOPT: diversity is forced when the last six directions hold at most two distinct ones.
LAST_DIRECTIONS = 6
DISTINCT_DIRECTIONS = 2
# KernelOPT: UCB.
UCB = 1.4
# MCTS.jl's default exponent of progressive widening, |children| <= k N^alpha. Its k = 10 would put nearly all of a
# run's few dozen attempts directly under the root, so k is ours: docs/search.md has what 1, 2, 4 and 10 found.
ALPHA = 0.5
WIDENING = 2.0
SUCCESSFUL_WIDENING = 2.0  # ours: KernelPro gives successful nodes more children and does not say how many
# Ours: KernelPro prunes dead ends and does not say when.
DEAD_REPAIRS = RETRIES  # attempts below a failed node, none of them right
DEAD_ATTEMPTS = 6  # attempts below a right node, none of them better

# CUDA-L1: two exemplars, buckets drawn with probability proportional to exp((mean - mu) / tau). Width and tau are ours.
EXEMPLARS = 2
BUCKET = math.log(1.1)  # in log speed-up: 10 %
TAU = 0.5

# Ours.
SAMPLES = 8  # best-of-n
PATIENCE = 8  # greedy: attempts of a model since the best one
GAIN = 1.01  # the factor that counts as gain, above the noise of a quick timing
FRUITLESS = 3  # steps in a row that brought nothing new: the search ends
ENGINE_STALE = 4  # hybrid: the engine's attempts since its best one before the model takes over
