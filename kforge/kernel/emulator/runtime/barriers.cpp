// What a barrier and a warp operation wait for, what completes them, and what is an error.
#include <algorithm>
#include <cstring>

#include "scheduler.h"
#include "tracing.h"

namespace kforge_emulator {

// ---- exits ---------------------------------------------------------------------------------------------------

void Scheduler::finish(Thread* thread) {
  Block& block = *thread->block;
  --live_;
  moved_ = true;
  Warp& warp = *thread->warp;
  warp.live &= ~(1u << thread->lane);
  thread->site = Site{};
  if (tracing) tracing->thread_exits(*thread);
  leave_barrier(block.barrier);
  leave_barrier(block.cluster->barrier);
  if (block.grid_barrier) leave_barrier(*block.grid_barrier);
  if (warp.waiting) {
    unsigned seen = 0;  // lanes that waited only for this one
    for (unsigned left = warp.waiting; left; left &= left - 1) {
      unsigned mask = warp.masks[__builtin_ctz(left)];
      if (seen & mask & warp.waiting) continue;
      seen |= mask;
      if (mask >> thread->lane & 1) complete_collective(warp, mask, nullptr);
    }
  }
  if (--block.gang->live == 0) idle_.push_back(block.gang);
}

void Scheduler::leave_barrier(Barrier& barrier) {
  --barrier.expected;
  ++barrier.exited;
  if (barrier.arrived && barrier.arrived == barrier.expected) complete_barrier(barrier);
}

// ---- barriers ------------------------------------------------------------------------------------------------

void Scheduler::complete_barrier(Barrier& barrier) {
  for (Thread* t = barrier.first; barrier.one_place && !barrier.split && t; t = t->next)
    if (t->site.line != barrier.site.line ||
        (t->site.file != barrier.site.file && strcmp(t->site.file, barrier.site.file) != 0))
      fail(FAILED, "divergent barrier: threads of one block wait at " + describe(barrier.site) + " and at " +
                       describe(t->site));
  if (request_->strict && barrier.exited && barrier.site.what)
    fail(FAILED, describe(barrier.site) + ": barrier reached by " + std::to_string(barrier.arrived) + " threads, " +
                     std::to_string(barrier.exited) + " exited before it");
  if (tracing) tracing->completes(barrier);
  barrier.result = barrier.votes;
  barrier.votes = barrier.arrived = 0;
  ++barrier.generation;
  barrier.split = false;
  scratch_.clear();
  for (Thread* t = barrier.first; t; t = t->next) scratch_.push_back(t);
  barrier.first = barrier.last = nullptr;
  if (request_->order != 0 || gang_blocks_ > 1)
    std::sort(scratch_.begin(), scratch_.end());  // by rank: order 1 and 2 promise it
  release(scratch_.data(), unsigned(scratch_.size()));
}

static void arrive_at(Barrier& barrier, unsigned vote, Site site, bool stays) {
  if (tracing) tracing->arrives(barrier, stays);
  barrier.votes += vote;
  if (barrier.arrived++ == 0) barrier.site = site;
  if (barrier.arrived == barrier.expected) {
    barrier.site = site;
    scheduler->complete_barrier(barrier);
  }
}

static void stay_until(Barrier& barrier, unsigned generation, Site site) {
  if (barrier.generation != generation) return;
  Thread* me = current;
  me->site = site;
  me->next = nullptr;
  (barrier.first ? barrier.last->next : barrier.first) = me;
  barrier.last = me;
  scheduler->suspend();
}

unsigned synchronize(Barrier& barrier, unsigned vote, Site site) {
  unsigned generation = barrier.generation;
  arrive_at(barrier, vote, site, true);
  stay_until(barrier, generation, site);
  return barrier.result;
}

void arrive(Barrier& barrier, unsigned vote, Site site) {
  barrier.split = true;
  arrive_at(barrier, vote, site, false);
}

void wait(Barrier& barrier, unsigned generation, Site site) {
  if (tracing) tracing->waits(barrier, barrier.generation != generation);
  stay_until(barrier, generation, site);
}

// ---- warps ---------------------------------------------------------------------------------------------------

void warp_collective(unsigned mask, void* slot, Combine combine, Site site) {
  Thread* me = current;
  Warp& warp = *me->warp;
  if (!(mask >> me->lane & 1))
    fail(FAILED, site, "lane %u is not in its own mask 0x%08x", me->lane, mask);
  warp.slots[me->lane] = slot;
  warp.masks[me->lane] = mask;
  warp.combines[me->lane] = combine;
  warp.waiting |= 1u << me->lane;
  me->site = site;
  if (!scheduler->complete_collective(warp, mask, me)) scheduler->suspend();
}

bool Scheduler::complete_collective(Warp& warp, unsigned mask, Thread* last) {
  unsigned members = mask & warp.live;
  if (!members || (members & ~warp.waiting)) return false;
  unsigned lead = last ? last->lane : __builtin_ctz(members);
  Combine combine = warp.combines[lead];
  scratch_.clear();
  for (unsigned left = members; left; left &= left - 1) {
    unsigned lane = __builtin_ctz(left);
    Thread& t = warp.threads[lane];
    if (warp.masks[lane] != mask || warp.combines[lane] != combine)
      fail(FAILED, "lanes of one warp meet in different warp operations: lane " + std::to_string(lead) + " with mask " +
                       hexadecimal(mask) + " at " + describe(warp.threads[lead].site) + ", lane " + std::to_string(lane) +
                       " with mask " + hexadecimal(warp.masks[lane]) + " at " + describe(t.site));
    if (&t != last) scratch_.push_back(&t);
  }
  if (tracing) {
    tracing->collective(warp, members);
    ++tracing->muted;
  }
  if (combine) combine(warp.slots, members);
  if (tracing) --tracing->muted;
  warp.waiting &= ~members;
  if (last) last->site.what = nullptr;
  release(scratch_.data(), unsigned(scratch_.size()));
  return true;
}

unsigned active_lanes(Site site) {
  Thread* me = current;
  me->site = site;
  scheduler->gather(me);
  scheduler->suspend();
  return me->gathered;
}

// Nothing can run any more: lanes of a warp that stopped at one place are what the hardware would have converged.
void Scheduler::release_gathered() {
  std::vector<Thread*> group = std::move(gathering_);
  gathering_.clear();
  std::sort(group.begin(), group.end());
  for (Thread* t : group) {
    t->gathered = 0;
    for (Thread* other : group)
      if (other->warp == t->warp && other->site.line == t->site.line) t->gathered |= 1u << other->lane;
  }
  if (!group.empty()) release(group.data(), unsigned(group.size()));
}

void yield(Site site) {
  current->site = site;
  scheduler->sleep(current, false);
}

void spin(Site site) {
  current->site = site;
  scheduler->sleep(current, true);
}

void copy_issue(const Copy& copy) {
  if (tracing) tracing->copy_starts(copy);
  current->copies.copies.push_back(copy);
}

void copy_complete(unsigned keep) {
  CopyQueue& queue = current->copies;
  for (size_t i = 0; tracing && i < queue.copies.size(); ++i)
    if (queue.arrives(queue.copies[i], keep)) tracing->copy_arrives(queue.copies[i]);
  queue.complete(keep);
}

}  // namespace kforge_emulator
