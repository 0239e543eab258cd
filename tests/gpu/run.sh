#!/usr/bin/env bash
# The GPU tests in groups, for machines that are lent by the minute: tests/gpu/run.sh FOLDER [GROUP ...]
# What only asks for right values runs side by side, each group with temporary files, caches and a lock on the GPU of its
# own; what is marked `alone` (times, free memory) has a GPU for itself: the first one, and with a second GPU at once, else
# when the others are done. Failures are printed as they come, and a line a group with its result; whole logs go to
# FOLDER. With names of groups, only those. KFORGE_GPU_TESTS_S: seconds in all, after which everything is stopped.
set -u
cd "$(dirname "$0")/../.."
out=${1:?a folder for the logs}
shift
chosen=" $* "
python=${PYTHON:-python3}
at_once=${AT_ONCE:-10} # each forks processes that make contexts, which the driver makes one after the other
seconds=${KFORGE_GPU_TESTS_S:-560}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
mkdir -p "$out"
begin=$SECONDS
pids=()
failed=0
: >"$out/failures.txt"
tail -n +1 -f "$out/failures.txt" &
teller=$!

count() { # reads the caller's name
    grep -cE "^$1 [0-9.]+s " "$out/$name.log"
}

group() { # name, seconds, pytest's arguments
    local name=$1 limit=$2 left=$((seconds - SECONDS + begin)) place rc
    shift 2
    place=$(mktemp -d)
    [ "$limit" -le "$left" ] || limit=$((left > 0 ? left : 1))
    TMPDIR=$place KFORGE_CACHE=$place/cache timeout -k 5 "$limit" "$python" -m pytest -q --told "$out/failures.txt" \
        --tb=short --no-header -p no:cacheprovider --show-capture=no "$@" >"$out/$name.log" 2>&1
    rc=$?
    rm -rf "$place"
    printf '%-12s rc=%-3s at %4d s  %s passed, %s failed, %s skipped%s\n' "$name" "$rc" $((SECONDS - begin)) \
        "$(count pass)" "$(count FAILED)" "$(count skip)" "$([ "$rc" -ge 124 ] && echo ', CUT SHORT')"
    return $rc
}

wanted() {
    [[ $chosen = "  " || $chosen = *" $1 "* ]]
}

beside() { # as `group`, beside the others; on the second GPU where there is one
    wanted "$1" || return 0
    while [ "$(jobs -rp | wc -l)" -gt "$at_once" ]; do sleep 0.2; done
    if [ "$gpus" -gt 1 ]; then export CUDA_VISIBLE_DEVICES=1; fi
    group "$@" -m "not alone" &
    pids+=($!)
}

t=tests/gpu
with_alone="$t/test_ceilings.py $t/test_timing_gpu.py $t/test_memory_gpu.py $t/test_worker_gpu.py $t/test_environment_gpu.py
    $t/test_redteam_gpu.py $t/test_workers_gpu.py $t/test_sessions.py"
for file in $t/test_*.py; do
    grep -q "\$t/$(basename "$file")" "$0" || { echo "$file is in no group"; failed=1; }
    if grep -q 'mark\.alone' "$file" && [[ $with_alone != *$file* ]]; then echo "$file is not in with_alone"; failed=1; fi
done

one_by_one() {
    local rc=0
    if [ "$gpus" -gt 1 ]; then export CUDA_VISIBLE_DEVICES=0; fi
    wanted alone && { group alone 280 $with_alone -m alone || rc=1; }
    wanted ide && { group ide 120 $t/test_ide.py || rc=1; }
    wanted profiling && { KFORGE_KEEP_PROFILES=$out/profiles group profiling 150 $t/test_profiling.py || rc=1; }
    return $rc
}

if [ "$gpus" -gt 1 ]; then
    one_by_one &
    pids+=($!)
fi
for k in 1 2 3 4 5 6; do beside redteam$k 240 $t/test_redteam_gpu.py --part $k/6; done
for k in 1 2 3 4; do beside skills$k 200 $t/test_skills.py --part $k/4; done
beside sessions 200 $t/test_sessions.py
for k in 1 2; do beside judge$k 200 $t/test_environment_gpu.py --part $k/2; done
for k in 1 2 3; do beside examples$k 200 $t/test_examples.py --part $k/3; done
beside engine 200 $t/test_engine.py $t/test_layouts.py
beside compute 200 $t/test_compute.py
beside memory 200 $t/test_memory_gpu.py
beside kernel 200 $t/test_kernel_gpu.py $t/test_task.py
beside worker 200 $t/test_worker_gpu.py $t/test_emulator.py
beside tools 200 $t/test_tools.py
for k in 1 2 3 4; do beside export$k 200 $t/test_export.py --part $k/4; done
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
if [ "$gpus" -le 1 ]; then one_by_one || failed=1; fi
sleep 0.5
kill "$teller"
echo "$((SECONDS - begin)) s, $( ((failed)) && echo failures || echo 'all passed')"
exit $failed
