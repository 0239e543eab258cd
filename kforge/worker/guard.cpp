// The allocator that a candidate's process uses while its answers are judged: every allocation stands between guard
// bands and holds one of two byte patterns, so that elements never written and writes beyond the end show.
//
// Loaded by guard.py; torch calls kforge_guard_alloc and kforge_guard_free. The driver is found by name, nothing of
// CUDA is needed to build this file.

#include <dlfcn.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

using Pointer = unsigned long long;
using Stream = void*;

constexpr size_t kFront = 4096, kBack = 4096, kAlign = 512;  // bytes
constexpr size_t kMostFreed = size_t(8) << 30;               // freed bytes that may wait for the next check
constexpr int kRelaxed = 2, kNonBlocking = 1, kOutOfMemory = 2;

struct Driver {
    int (*alloc)(Pointer*, size_t);
    int (*release)(Pointer);
    int (*fill)(Pointer, unsigned char, size_t, Stream);
    int (*read)(void*, Pointer, size_t);
    int (*make_stream)(Stream*, unsigned);
    int (*wait_stream)(Stream);
    int (*wait)();
    int (*exchange)(int*);
    int (*is_capturing)(Stream, int*);
    int (*current)(void**);
    int (*retain)(void**, int);
    int (*make_current)(void*);

    Driver() {
        void* library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) throw std::runtime_error("the guard allocator finds no libcuda.so.1");
        auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
            if (!function) throw std::runtime_error(std::string("the driver has no ") + name);
        };
        find(alloc, "cuMemAlloc_v2");
        find(release, "cuMemFree_v2");
        find(fill, "cuMemsetD8Async");
        find(read, "cuMemcpyDtoH_v2");
        find(make_stream, "cuStreamCreate");
        find(wait_stream, "cuStreamSynchronize");
        find(wait, "cuCtxSynchronize");
        find(exchange, "cuThreadExchangeStreamCaptureMode");
        find(is_capturing, "cuStreamIsCapturing");
        find(current, "cuCtxGetCurrent");
        find(retain, "cuDevicePrimaryCtxRetain");
        find(make_current, "cuCtxSetCurrent");
    }
};

struct Block {
    Pointer base;
    size_t size, whole;   // asked for; with guards
    unsigned char guard;  // the byte that its bands hold
    bool captured;        // a graph may use it for as long as it lives
};

std::mutex mutex;
std::unordered_map<Pointer, Block> live;
std::vector<Block> freed;
size_t freed_bytes, live_bytes, begin_bytes, peak_bytes;
unsigned char pattern = 0x7F, guard_byte = 0xFF;
std::unordered_map<void*, Stream> streams;  // of each context, for filling
std::string damage;

Driver& driver() {
    static Driver made;
    return made;
}

void check(int status, const char* what) {
    if (status) throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(status));
}

// Allocation, filling and waiting are refused while this thread captures, unless it says that it knows.
struct Relaxed {
    int mode = kRelaxed;
    Relaxed() { driver().exchange(&mode); }
    ~Relaxed() { driver().exchange(&mode); }
};

void* context(int device) {
    void* found = nullptr;
    check(driver().current(&found), "cuCtxGetCurrent");
    if (!found) {
        check(driver().retain(&found, device), "cuDevicePrimaryCtxRetain");
        check(driver().make_current(found), "cuCtxSetCurrent");
    }
    return found;
}

bool capturing(Stream stream) {
    int state = 0;
    return driver().is_capturing(stream, &state) == 0 && state != 0;
}

void inspect(const Block& block) {
    static std::vector<unsigned char> bytes(kFront + kBack + kAlign);
    auto look = [&](Pointer from, size_t count, bool front) {
        if (driver().read(bytes.data(), from, count)) return;  // a broken context says so by itself
        size_t first = count, number = 0;
        for (size_t i = 0; i < count; ++i)
            if (bytes[i] != block.guard) first = number++ ? first : i;
        if (!number || damage.size() > 1000) return;
        char text[200];
        if (front)
            snprintf(text, sizeof text, "%zu bytes written before an allocation of %zu bytes, the first %zu ahead of it",
                     number, block.size, count - first);
        else
            snprintf(text, sizeof text, "%zu bytes written past the end of an allocation of %zu bytes, the first at +%zu",
                     number, block.size, first);
        damage += (damage.empty() ? "" : "; ") + std::string(text);
    };
    look(block.base, kFront, true);
    look(block.base + kFront + block.size, block.whole - kFront - block.size, false);
}

void release_freed() {
    std::vector<Block> kept;
    for (const Block& block : freed) {
        inspect(block);
        if (block.captured)
            kept.push_back(block);
        else
            driver().release(block.base);
    }
    freed.swap(kept);
    freed_bytes = 0;
}

}  // namespace

extern "C" {

void* kforge_guard_alloc(ssize_t size, int device, Stream stream) {
    std::lock_guard<std::mutex> lock(mutex);
    Relaxed relaxed;
    void* here = context(device);
    Block block{};
    block.size = size_t(size);
    block.whole = kFront + (block.size + kAlign - 1) / kAlign * kAlign + kBack;
    block.guard = guard_byte;
    block.captured = capturing(stream);
    if (!block.captured && freed_bytes > kMostFreed && !driver().wait()) release_freed();
    int status = driver().alloc(&block.base, block.whole);
    if (status == kOutOfMemory && !block.captured && !driver().wait()) {
        release_freed();
        status = driver().alloc(&block.base, block.whole);
    }
    if (status == kOutOfMemory)
        throw std::runtime_error("CUDA out of memory: " + std::to_string(size) + " bytes were asked for");
    check(status, "cuMemAlloc");
    Stream& own = streams[here];
    if (!own) check(driver().make_stream(&own, kNonBlocking), "cuStreamCreate");
    Pointer data = block.base + kFront;
    check(driver().fill(block.base, guard_byte, kFront, own), "filling");
    if (block.size) check(driver().fill(data, pattern, block.size, own), "filling");
    check(driver().fill(data + block.size, guard_byte, block.whole - kFront - block.size, own), "filling");
    check(driver().wait_stream(own), "filling");
    live[data] = block;
    live_bytes += block.size;
    if (live_bytes > peak_bytes) peak_bytes = live_bytes;
    return reinterpret_cast<void*>(data);
}

void kforge_guard_free(void* pointer, ssize_t, int, Stream stream) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = live.find(reinterpret_cast<Pointer>(pointer));
    if (found == live.end()) return;
    Block block = found->second;
    live.erase(found);
    live_bytes -= block.size;
    block.captured = block.captured || capturing(stream);
    if (!block.captured) freed_bytes += block.whole;
    freed.push_back(block);  // kernels that use it may still be under way
}

// From now on fresh memory consists of this byte, and the guards of the other one.
void kforge_guard_pattern(int byte, int guard) {
    std::lock_guard<std::mutex> lock(mutex);
    pattern = static_cast<unsigned char>(byte);
    guard_byte = static_cast<unsigned char>(guard);
}

// What is held now is where `kforge_guard_peak` counts from.
void kforge_guard_begin() {
    std::lock_guard<std::mutex> lock(mutex);
    begin_bytes = peak_bytes = live_bytes;
}

unsigned long long kforge_guard_peak() {
    std::lock_guard<std::mutex> lock(mutex);
    return peak_bytes - begin_bytes;
}

// With the device idle: what has been written between allocations since the last call, in words. Returns the length.
int kforge_guard_check(char* text, size_t capacity) {
    std::lock_guard<std::mutex> lock(mutex);
    for (const auto& entry : live) inspect(entry.second);
    release_freed();
    snprintf(text, capacity, "%s", damage.c_str());
    damage.clear();
    return int(strlen(text));
}
}
