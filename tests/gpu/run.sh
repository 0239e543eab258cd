#!/usr/bin/env bash
# The GPU tests in groups, for machines that are lent by the minute: tests/gpu/run.sh FOLDER [GROUP ...]
# What only asks for right values runs side by side, each group with temporary files, caches and a lock on the GPU of its
# own; what is marked `alone` (times, free memory) has a GPU for itself: the first one, and with a second GPU at once, else
# when the others are done. Failures are printed as they come, and a line a group with its result; whole logs go to
# FOLDER. With names of groups, only those. KFORGE_GPU_TESTS_S: seconds in all, after which everything is stopped.
# KFORGE_GPU_RESULTS=FILE: what passed is recorded there, test by test, and not run again by a later call, so that a whole
# pass can take several calls. Its first line names the tree (commit, and a digest of what is tested): another tree
# starts the file anew. Carry it between machines; its last line says what is left.
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
results=${KFORGE_GPU_RESULTS:-}
resume=()
if [ -n "$results" ]; then
    commit=${KFORGE_COMMIT:-$(git rev-parse HEAD 2>/dev/null || echo none)}
    digest=$(find kforge templates examples skills benchmarks tests pyproject.toml -type f ! -name '*.pyc' \
        ! -path 'benchmarks/results/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
    tree="tree $commit $digest"
    [ "$(head -n 1 "$results" 2>/dev/null)" = "$tree" ] || echo "$tree" >"$results"
    echo "$tree, $(grep -c '^pass ' "$results") tests passed before"
    resume=(--resume "$results")
fi
pids=()
failed=0
: >"$out/failures.txt"
tail -n +1 -f "$out/failures.txt" &
teller=$!

count() { # reads the caller's name
    grep -cE "^$1 [0-9.]+s " "$out/$name.log"
}

known=" "

note() { # a line of the results
    [ -z "$results" ] || echo "$1" >>"$results"
}

group() { # name, seconds, pytest's arguments
    local name=$1 limit=$2 left=$((seconds - SECONDS + begin)) from=$SECONDS place rc
    shift 2
    place=$(mktemp -d)
    [ "$limit" -le "$left" ] || limit=$((left > 0 ? left : 1))
    TMPDIR=$place KFORGE_CACHE=$place/cache timeout -k 5 "$limit" "$python" -m pytest -q --told "$out/failures.txt" \
        --tb=short --no-header -p no:cacheprovider --show-capture=no "${resume[@]}" "$@" >"$out/$name.log" 2>&1
    rc=$?
    rm -rf "$place"
    [ $rc = 5 ] && rc=0 # no test of it is left
    [ $rc = 0 ] && note "group $name $((SECONDS - from)) s"
    printf '%-12s rc=%-3s %4d s, until %4d s  %s passed, %s failed, %s skipped%s\n' "$name" "$rc" $((SECONDS - from)) \
        $((SECONDS - begin)) "$(count pass)" "$(count FAILED)" "$(count skip)" "$([ $rc -ge 124 ] && echo ', CUT SHORT')"
    return $rc
}

wanted() {
    known+="$1 "
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
with_alone="$t/test_ceilings.py $t/test_export.py $t/test_timing_gpu.py $t/test_memory_gpu.py $t/test_worker_gpu.py $t/test_environment_gpu.py
    $t/test_redteam_gpu.py $t/test_workers_gpu.py $t/test_sessions.py"
for file in $t/test_*.py; do
    grep -q "\$t/$(basename "$file")" "$0" || { echo "$file is in no group"; failed=1; }
    if grep -q 'mark\.alone' "$file" && [[ $with_alone != *$file* ]]; then echo "$file is not in with_alone"; failed=1; fi
done

one_by_one() {
    local rc=0
    if [ "$gpus" -gt 1 ]; then export CUDA_VISIBLE_DEVICES=0; fi
    wanted alone && { group alone 400 $with_alone -m alone || rc=1; }
    wanted profiling && { KFORGE_KEEP_PROFILES=$out/profiles group profiling 150 $t/test_profiling.py || rc=1; }
    return $rc
}

if [ "$gpus" -gt 1 ]; then
    one_by_one &
    pids+=($!)
fi
for k in 1 2 3 4 5 6; do beside redteam$k 240 $t/test_redteam_gpu.py --part $k/6; done
for k in 1 2; do beside export$k 250 $t/test_export.py --part $k/2; done
beside ide 200 $t/test_ide.py
for k in 1 2; do beside skills$k 200 $t/test_skills.py --part $k/2; done
beside sessions 200 $t/test_sessions.py
for k in 1 2; do beside judge$k 200 $t/test_environment_gpu.py --part $k/2; done
for k in 1 2 3; do beside examples$k 200 $t/test_examples.py --part $k/3; done
beside engine 200 $t/test_engine.py $t/test_layouts.py
beside compute 200 $t/test_compute.py
beside memory 200 $t/test_memory_gpu.py
beside kernel 200 $t/test_kernel_gpu.py $t/test_task.py
beside worker 200 $t/test_worker_gpu.py $t/test_emulator.py
beside tools 200 $t/test_tools.py
for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
if [ "$gpus" -le 1 ]; then one_by_one || failed=1; fi
sleep 0.5
kill "$teller"
if [ -n "$results" ]; then
    left=""
    for name in $known alone profiling; do # what ran beside the rest is known to another shell only
        grep -q "^group $name " "$results" || [[ " $left " = *" $name "* ]] || left+="$name "
    done
    echo "$tree: $(grep '^pass ' "$results" | sort -u | wc -l) tests passed; ${left:+left: }${left:-every group passed: one whole pass}"
fi
echo "$((SECONDS - begin)) s, $( ((failed)) && echo failures || echo 'all passed')"
exit $failed
