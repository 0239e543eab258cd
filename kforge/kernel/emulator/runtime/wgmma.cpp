// wgmma: products of a warpgroup from shared memory, carried out when their group is waited for.
// Layouts: PTX ISA, "Asynchronous warpgroup level matrix instructions": register fragments, shared memory layouts.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>

#include "kforge_emulator/hopper.h"
#include "scheduler.h"
#include "tracing.h"

namespace kforge_emulator {

void forget_stores(Thread& thread);

// The sums of one warp, away from its registers while products into them are in flight.
struct Accumulator {
  unsigned n;
  std::vector<float*> registers;  // lane by lane
  std::vector<float> values;
  unsigned in_flight = 0;
};
struct MatrixOperation {
  Accumulator* sums;
  MatrixProduct product;
  uint32_t a[32][4];
  unsigned group;
  Site site;
};
struct MatrixQueue {  // of one warp, kept by its lane 0
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  std::vector<MatrixOperation> operations;
  unsigned group = 0;
  bool fenced = false;
  std::map<const float*, std::vector<float>> unordered;  // sums that were handed back, by register, until a fence
};

namespace {

constexpr uint32_t kPoison = 0xffffffffu;

MatrixQueue& queue() {
  Thread& lead = current->warp->threads[0];
  if (!lead.products) lead.products = new MatrixQueue;
  return *lead.products;
}

float half_value(uint16_t h) {
  int exponent = h >> 10 & 31, mantissa = h & 1023;
  float v = exponent == 31 ? (mantissa ? NAN : INFINITY)
            : exponent     ? std::ldexp(float(mantissa + 1024), exponent - 25)
                           : std::ldexp(float(mantissa), -24);
  return h & 0x8000 ? -v : v;
}
const float* half_values() {
  static const std::vector<float> table = [] {
    std::vector<float> t(65536);
    for (unsigned i = 0; i < 65536; ++i) t[i] = half_value(uint16_t(i));
    return t;
  }();
  return table.data();
}
float number(MatrixProduct::Type type, const char* at) {
  uint32_t u = 0;
  memcpy(&u, at, type == MatrixProduct::TF32 ? 4 : 2);
  if (type == MatrixProduct::F16) return half_values()[u];
  u = type == MatrixProduct::BF16 ? u << 16 : u & ~0x1fffu;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// A matrix in shared memory by its descriptor: rows along M or N, columns along K.
struct Matrix {
  const Block& block;
  uint64_t descriptor;
  MatrixProduct::Type type;
  bool transposed;
  Site site;

  const char* at(unsigned row, unsigned k) const {
    size_t size = type == MatrixProduct::TF32 ? 4 : 2;
    size_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
    size_t stride = (descriptor >> 32 & 0x3fff) << 4, mode = descriptor >> 62;
    size_t span = mode == 0 ? 16 : 256 >> mode, bytes = k * size;  // modes 1, 2, 3: 128, 64, 32 bytes
    size_t o = start;
    if (!transposed)
      o += row / 8 * stride + row % 8 * span + (mode ? bytes : bytes / 16 * leading + bytes % 16);
    else if (mode)
      o += row / (span / 2) * leading + row % (span / 2) * 2 + k % 8 * span + k / 8 * stride;
    else
      o += row / 8 * stride + row % 8 * 2 + k % 8 * 16 + k / 8 * leading;
    if (mode) o ^= (o >> 7 & (span / 16 - 1)) << 4;
    if (o + size > block.dynamic_offset + block.dynamic_bytes)
      fail(FAILED, site, "a matrix descriptor leads outside of the block's shared memory (byte %zu)", o);
    return block.shared + o;
  }
  void read(unsigned from, unsigned rows, unsigned depth, float* to) const {
    unsigned size = type == MatrixProduct::TF32 ? 4 : 2;
    for (unsigned r = 0; r < rows; ++r)
      for (unsigned k = 0; k < depth; ++k) {
        const char* p = at(from + r, k);
        to[r * depth + k] = number(type, p);
        if (!tracing) continue;
        // sixteen bytes are one access, whichever way they lie
        if (transposed ? (from + r) % 8 : k * size % 16) continue;
        if (tracing->unfenced(p, 16))
          fail(FAILED, site, "a matrix in shared memory was stored to without fence.proxy.async since");
        tracing->reads(p, 16, site);
      }
  }
};

void carry_out(const MatrixOperation& o) {
  const MatrixProduct& p = o.product;
  const Block& block = *current->block;
  const unsigned depth = p.type == MatrixProduct::TF32 ? 8 : 16, rows = current->rank / 32 % 4 * 16;
  std::vector<float> a(16 * depth), b(size_t(p.n) * depth);
  if (p.a_in_registers) {
    const unsigned size = p.type == MatrixProduct::TF32 ? 4 : 2, per = 4 / size;
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned r = 0; r < 4; ++r)
        for (unsigned e = 0; e < per; ++e)
          a[(lane / 4 + 8 * (r & 1)) * depth + (lane % 4 + 4 * (r >> 1)) * per + e] =
              number(p.type, (const char*)&o.a[lane][r] + e * size);
  } else {
    Matrix{block, p.a, p.type, p.transposed_a, o.site}.read(rows, 16, depth, a.data());
  }
  Matrix{block, p.b, p.type, p.transposed_b, o.site}.read(0, p.n, depth, b.data());
  const float sign = float(p.scale_a * p.scale_b);
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < p.n / 2; ++i) {
      const float* x = &a[(lane / 4 + 8 * (i >> 1 & 1)) * depth];
      const float* y = &b[(8 * (i / 4) + 2 * (lane % 4) + (i & 1)) * depth];
      float& sum = o.sums->values[size_t(lane) * p.n / 2 + i];
      float s = p.accumulate ? sum : 0.0f;
      for (unsigned k = 0; k < depth; ++k) s += sign * x[k] * y[k];
      sum = s;
    }
}

// A swizzled matrix begins where its pattern does, but for steps within a line: else the descriptor says how far on.
void check_start(uint64_t descriptor, Site site) {
  const unsigned mode = unsigned(descriptor >> 62), start = unsigned(descriptor & 0x3fff) << 4;
  if (descriptor >> 49 & 7) fail(GPU_ONLY, site, "wgmma with a base offset in its descriptor");
  const unsigned span = mode ? 256u >> mode : 0;
  if (mode && start % (8 * span) / 128)
    fail(FAILED, site, "a matrix swizzled by %u bytes begins at byte %u of shared memory, no multiple of %u", span, start,
         8 * span);
}

struct Issue {
  const MatrixProduct* product;
  Site site;

  // Sums that were changed since they were handed back need a wgmma.fence before they are in flight again.
  static void check_order(MatrixQueue& q, void** slots, const MatrixProduct& p, Site site) {
    auto found = q.unordered.find(p.sums[0]);
    if (found == q.unordered.end() || found->second.size() != size_t(p.n) * 16) return;
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < p.n / 2; ++i)
        if (memcmp(static_cast<Issue*>(slots[lane])->product->sums[i], &found->second[size_t(lane) * p.n / 2 + i], 4))
          fail(FAILED, site, "sums were written after wgmma.wait_group, without wgmma.fence before they are added to");
  }

  static void combine(void** slots, unsigned members) {
    auto slot = [&](unsigned lane) -> const Issue& { return *static_cast<Issue*>(slots[lane]); };
    const MatrixProduct& p = *slot(__builtin_ctz(members)).product;
    const Site site = slot(__builtin_ctz(members)).site;
    const unsigned group_end = (current->rank / 128 + 1) * 128;
    if (members != ~0u || group_end > current->block->size)
      fail(FAILED, site, "wgmma needs the 128 threads of a warpgroup");
    MatrixQueue& q = queue();
    if (!q.fenced) fail(FAILED, site, "wgmma.mma_async before any wgmma.fence");
    check_start(p.b, site);
    if (!p.a_in_registers) check_start(p.a, site);
    Accumulator* sums = nullptr;
    for (auto& other : q.accumulators)
      if (other->registers[0] == p.sums[0]) sums = other.get();
    if (sums && sums->n != p.n) fail(FAILED, site, "products of different shapes into the same registers in flight");
    if (!sums) {
      q.accumulators.push_back(std::make_unique<Accumulator>());
      sums = q.accumulators.back().get();
      sums->n = p.n;
      check_order(q, slots, p, site);
      for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < p.n / 2; ++i) {
          float* r = slot(lane).product->sums[i];
          sums->registers.push_back(r);
          sums->values.push_back(*r);
          memcpy(r, &kPoison, 4);
        }
    }
    MatrixOperation o{sums, p, {}, q.group, site};
    for (unsigned lane = 0; lane < 32; ++lane) {
      const MatrixProduct& other = *slot(lane).product;
      if (other.b != p.b || (!p.a_in_registers && other.a != p.a) || other.accumulate != p.accumulate)
        fail(FAILED, site, "lanes of one warp give wgmma different descriptors");
      memcpy(o.a[lane], other.a_registers, sizeof o.a[lane]);
    }
    o.product.sums = nullptr;
    ++sums->in_flight;
    q.operations.push_back(o);
  }
};

struct Wait {
  unsigned keep;
  Site site;

  static void combine(void** slots, unsigned members) {
    const Wait& w = *static_cast<Wait*>(slots[__builtin_ctz(members)]);
    MatrixQueue& q = queue();
    size_t kept = 0;
    for (MatrixOperation& o : q.operations) {
      if (o.group < q.group && q.group - o.group > w.keep) {
        carry_out(o);
        --o.sums->in_flight;
      } else {
        q.operations[kept++] = o;
      }
    }
    q.operations.erase(q.operations.begin() + long(kept), q.operations.end());
    for (size_t i = 0; i < q.accumulators.size();) {
      Accumulator& a = *q.accumulators[i];
      if (a.in_flight) {
        ++i;
        continue;
      }
      for (size_t k = 0; k < a.values.size(); ++k) {
        if (memcmp(a.registers[k], &kPoison, 4))
          fail(FAILED, w.site, "a register was written while a wgmma into it was in flight");
        *a.registers[k] = a.values[k];
      }
      q.unordered[a.registers[0]] = a.values;
      q.accumulators.erase(q.accumulators.begin() + long(i));
    }
  }
};

struct Commit {
  static void combine(void**, unsigned) { ++queue().group; }
};
struct Fence {
  static void combine(void**, unsigned) {
    queue().fenced = true;
    queue().unordered.clear();
  }
};
struct Nothing {
  static void combine(void**, unsigned) {}
};

}  // namespace

void matrix_fence(Site site) { warp_collective(~0u, nullptr, &Fence::combine, site); }
void matrix_commit(Site site) { warp_collective(~0u, nullptr, &Commit::combine, site); }

void matrix_issue(const MatrixProduct& product, Site site) {
  Issue slot{&product, site};
  warp_collective(~0u, &slot, &Issue::combine, site);
}

void matrix_wait(unsigned keep, Site site) {
  Wait slot{keep, site};
  warp_collective(~0u, &slot, &Wait::combine, site);
  // One lane has read for all: what another lane does next comes after it.
  if (tracing) warp_collective(~0u, nullptr, &Nothing::combine, site);
}

// A warpgroup takes or gives registers. A block has what it was launched with, at most 64K in all.
void set_registers(unsigned count, Site site) {
  if (count % 8 || count < 24 || count > 256)
    fail(FAILED, site, "setmaxnreg of %u registers; a multiple of 8 from 24 to 256 is possible", count);
  Block& b = *current->block;
  if (b.size % 128) fail(FAILED, site, "setmaxnreg in a block of %u threads, which are no warpgroups", b.size);
  const unsigned at_launch = std::min(65536 / b.size / 8 * 8, 255u);
  b.registers[current->rank / 128] = count;
  unsigned least = 0;
  for (unsigned g = 0; g < b.size / 128; ++g) least += b.registers[g] ? b.registers[g] : 24;
  if (least > at_launch * (b.size / 128))
    fail(FAILED, site, "setmaxnreg: warpgroups have %u registers a thread together, a block of %u threads at most %u", least,
         b.size, at_launch * (b.size / 128));
}

void forget_asynchronous(Thread& thread) {
  forget_stores(thread);
  delete thread.products;
  thread.products = nullptr;
}

}  // namespace kforge_emulator
