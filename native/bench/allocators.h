// The allocators that are measured: our pool, TVM's two from the installed wheel, and malloc, whichever that is.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "bindings/vm_layout.h"
#include "pool/pool.h"

namespace bench {

struct Allocator {
  virtual ~Allocator() = default;
  virtual void* Alloc(int64_t nbytes) = 0;
  virtual void Free(void* block, int64_t nbytes) = 0;
};

struct Ours final : Allocator {
  explicit Ours(const symalloc::Options& options) : pool(options) {}
  void* Alloc(int64_t nbytes) override { return pool.Alloc(nbytes, 64, false); }
  void Free(void* block, int64_t nbytes) override { pool.Free(block, nbytes); }
  symalloc::Pool pool;
};

// Plain malloc aligns to 16 bytes, where the others align to 64: some of them are many times slower when asked
// for more.
struct Malloc final : Allocator {
  void* Alloc(int64_t nbytes) override {
    void* block = malloc(nbytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void Free(void* block, int64_t) override { free(block); }
};

// Type 1 is TVM's naive allocator, 2 its pooled one.
struct Tvm final : Allocator {
  Tvm(const char* library, int type) : type(type) {
    using Get = symalloc::VmAllocator* (*)(DLDevice, int);
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    auto get = reinterpret_cast<Get>(
        dlsym(handle, "_ZN3tvm7runtime6memory13MemoryManager20GetOrCreateAllocatorE8DLDeviceNS1_13AllocatorTypeE"));
    if (get == nullptr) throw std::runtime_error(dlerror());
    tvm = get(kCpu, type);
  }
  void* Alloc(int64_t nbytes) override { return tvm->Alloc(kCpu, nbytes, 64, DLDataType{kDLUInt, 8, 1}).data; }
  void Free(void* block, int64_t nbytes) override {
    // the pooled allocator looks for the size in whole pages
    size_t size = type == 2 ? (nbytes + 4095) / 4096 * 4096 : nbytes;
    tvm->Free(symalloc::VmBuffer{block, size, kCpu, type});
  }
  static constexpr DLDevice kCpu{kDLCPU, 0};
  symalloc::VmAllocator* tvm;
  int type;
};

// "pool", "malloc", "tvm-naive" or "tvm-pooled"; `library` is libtvm_runtime.so.
inline std::unique_ptr<Allocator> Make(const std::string& name, const char* library) {
  if (name == "pool") return std::make_unique<Ours>(symalloc::Options{});
  if (name == "malloc") return std::make_unique<Malloc>();
  if (name == "tvm-naive") return std::make_unique<Tvm>(library, 1);
  if (name == "tvm-pooled") return std::make_unique<Tvm>(library, 2);
  throw std::invalid_argument("no allocator is called " + name);
}

}  // namespace bench
