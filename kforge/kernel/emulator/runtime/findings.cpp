// Mode `checked`: turns AddressSanitizer's reports into records on a file descriptor, written at once, because the
// process may die of what the report is about. Fields end with '\x1f', records with '\x1e'.
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <string>

#include "scheduler.h"

extern "C" {
__attribute__((weak)) void __asan_set_error_report_callback(void (*callback)(const char*));
__attribute__((weak)) void* __asan_get_report_address();
__attribute__((weak)) int __asan_get_report_access_type();
__attribute__((weak)) size_t __asan_get_report_access_size();
__attribute__((weak)) const char* __asan_get_report_description();
}

namespace kforge_emulator {
namespace {

int descriptor = -1;

void write_record(const char* kind, uintptr_t address, bool writes, size_t size, const std::string& place,
                  const char* text) {
  long long arena_offset = -1, dynamic_offset = 0, dynamic_bytes = 0;
  unsigned rank = 0;
  uint3 thread{}, block{};
  if (current) {
    thread = current->index;
    block = current->block->index;
    const Cluster& cluster = *current->block->cluster;
    for (unsigned r = 0; r < cluster.size; ++r) {
      const Block& b = cluster.blocks[r];
      uintptr_t first = reinterpret_cast<uintptr_t>(b.shared);
      if (address >= first && address < first + b.dynamic_offset + b.dynamic_bytes + 1024) {
        arena_offset = (long long)(address - first);
        dynamic_offset = (long long)b.dynamic_offset;
        dynamic_bytes = (long long)b.dynamic_bytes;
        rank = r;
      }
    }
  }
  char head[512];
  snprintf(head, sizeof head,
           "%s\x1f%" PRIuPTR "\x1f%d\x1f%zu\x1f%lld\x1f%lld\x1f%lld\x1f%u\x1f(%u,%u,%u)\x1f(%u,%u,%u)\x1f", kind, address,
           writes, size, arena_offset, dynamic_offset, dynamic_bytes, rank, thread.x, thread.y, thread.z, block.x,
           block.y, block.z);
  std::string record = head + place + "\x1f" + text + "\x1e";
  for (size_t done = 0; done < record.size();) {
    ssize_t n = write(descriptor, record.data() + done, record.size() - done);
    if (n <= 0) return;
    done += size_t(n);
  }
}

void on_report(const char* text) {
  write_record(__asan_get_report_description(), reinterpret_cast<uintptr_t>(__asan_get_report_address()),
               __asan_get_report_access_type() != 0, __asan_get_report_access_size(), "", text);
}

}  // namespace
}  // namespace kforge_emulator

// False: AddressSanitizer is not loaded in this process.
KFORGE_API int kforge_emulator_report_to(int fd) {
  if (!__asan_set_error_report_callback) return 0;
  kforge_emulator::descriptor = fd;
  __asan_set_error_report_callback(kforge_emulator::on_report);
  return 1;
}

// What -fsanitize=alignment calls (libubsan is not linked): a record in mode `checked`, the end of the launch in `fast`.
struct TypeMismatch {
  const char* file;
  unsigned line, column;
  const void* type;
  unsigned char log_alignment, kind;  // kind 1: store
};
KFORGE_API void __ubsan_handle_type_mismatch_v1(TypeMismatch* data, uintptr_t address) {
  unsigned alignment = 1u << data->log_alignment;
  if (kforge_emulator::descriptor < 0 && kforge_emulator::current)
    kforge_emulator::fail(kforge_emulator::MISALIGNED, {"", data->file, int(data->line)},
                          "misaligned %s: the address is no multiple of %u bytes",
                          data->kind == 1 ? "write" : "read", alignment);
  if (kforge_emulator::descriptor < 0 || data->line == 0) return;
  std::string place = std::string(data->file) + ":" + std::to_string(data->line);
  data->line = 0;  // each place once, as AddressSanitizer does
  kforge_emulator::write_record("misaligned", address, data->kind == 1, alignment, place, "");
}
