// Memory whose every misuse shows: an allocator for TVM's virtual machine, and tensors for its inputs.
//
// Each block ends (up to 63 bytes, since TVM's code wants 64-byte alignment) where a page begins that nobody may
// touch; another such page lies in front of the pages that hold it.  A block is filled with large numbers, no
// two of them alike, after a byte that the test chooses; what lies beside it in its pages with one byte.

#include <sys/mman.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>

#include "vm_allocator.h"

namespace {

using tvm::ffi::Shape;
using tvm::ffi::Tensor;
using tvm::runtime::memory::Allocator;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::Buffer;

constexpr int kType = 34;
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 64;
constexpr size_t kMost = size_t{1} << 28;  // bytes of a block: more is a size gone wrong

struct Block {
  uint8_t* pages;  // without the two that are out of bounds
  size_t length;   // of the pages
  size_t nbytes;
  uint8_t beside;  // what lies beside it in the pages
};

uint8_t fill = 0;  // the highest byte of each number
uint8_t salt = 0;  // so that what is copied from beside one block to beside another shows

// By the block's address.  Never destroyed: TVM gives blocks back while the process ends.
std::map<const uint8_t*, Block>& Blocks() {
  static auto* blocks = new std::map<const uint8_t*, Block>();
  return *blocks;
}

uint8_t* Take(size_t nbytes) {
  if (nbytes > kMost) TVM_FFI_THROW(MemoryError) << "guarded memory: a block of " << nbytes << " bytes";
  size_t rounded = (nbytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t length = (rounded + kPage - 1) / kPage * kPage;
  void* mapped = mmap(nullptr, length + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) TVM_FFI_THROW(MemoryError) << "guarded memory: no room";
  uint8_t* pages = static_cast<uint8_t*>(mapped) + kPage;
  // one of no bytes lies where nothing may be touched, at an address of its own
  uint8_t* data = pages + length - rounded;
  uint8_t beside = fill ^ (1 + salt++ % 100);
  if (length != 0) {
    mprotect(pages, length, PROT_READ | PROT_WRITE);
    std::memset(pages, beside, length);
    for (size_t i = 0; i < nbytes; ++i) data[i] = i % 4 == 3 ? fill : static_cast<uint8_t>(i * 41 ^ i >> 6 ^ fill);
  }
  Blocks()[data] = Block{pages, length, nbytes, beside};
  return data;
}

void Give(const void* data) {
  auto found = Blocks().find(static_cast<const uint8_t*>(data));
  if (found == Blocks().end()) return;
  munmap(found->second.pages - kPage, found->second.length + 2 * kPage);
  Blocks().erase(found);
}

class GuardingAllocator final : public Allocator {
 public:
  GuardingAllocator() : Allocator(static_cast<AllocatorType>(kType)) {}

  Buffer Alloc(DLDevice device, size_t nbytes, size_t, DLDataType) final {
    return Buffer{Take(nbytes), nbytes, device, static_cast<AllocatorType>(kType)};
  }

  Buffer Alloc(DLDevice device, Shape shape, DLDataType hint, const std::string&) final {
    size_t nbytes = (hint.bits * hint.lanes + 7) / 8;
    for (int64_t extent : shape) {
      if (extent < 0) TVM_FFI_THROW(ValueError) << "guarded memory: negative size " << extent;
      if (__builtin_mul_overflow(nbytes, static_cast<size_t>(extent), &nbytes)) nbytes = kMost + 1;
    }
    return Buffer{Take(nbytes), nbytes, device, static_cast<AllocatorType>(kType)};
  }

  void Free(const Buffer& buffer) final { Give(buffer.data); }
  size_t UsedMemory() const final { return 0; }
};

struct GuardedData {
  void AllocData(DLTensor* tensor) { tensor->data = Take(tvm::ffi::GetDataSize(*tensor)); }
  void FreeData(DLTensor* tensor) { Give(tensor->data); }
};

Tensor MakeTensor(Shape shape, DLDataType dtype) {
  return Tensor::FromNDAlloc(GuardedData{}, shape, dtype, DLDevice{kDLCPU, 0});
}

int64_t Address(Tensor tensor) {
  return reinterpret_cast<int64_t>(tensor.data_ptr()) + static_cast<int64_t>(tensor.byte_offset());
}

int64_t Bytes(Tensor tensor) { return static_cast<int64_t>(tvm::ffi::GetDataSize(tensor)); }

// The addresses of blocks beside which a byte has changed.
tvm::ffi::Array<int64_t> Overrun() {
  tvm::ffi::Array<int64_t> found;
  for (const auto& [data, block] : Blocks()) {
    const uint8_t* end = block.pages + block.length;
    bool intact = true;
    for (const uint8_t* at = block.pages; at < end; ++at) {
      if (at == data) at += block.nbytes;
      if (at < end && *at != block.beside) intact = false;
    }
    if (!intact) found.push_back(reinterpret_cast<int64_t>(data));
  }
  return found;
}

void Register() {
  auto before = tvm::ffi::Function::GetGlobal("DeviceAllocator.");
  tvm::ffi::Function::SetGlobal(
      "DeviceAllocator.", tvm::ffi::Function::FromTyped([before](DLDevice device, int type) -> void* {
        if (type == kType) return static_cast<Allocator*>(new GuardingAllocator());
        return before ? (*before)(device, type).cast<void*>() : nullptr;
      }),
      true);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("tests.guarded.fill", [](int64_t byte) { fill = static_cast<uint8_t>(byte); })
      .def("tests.guarded.tensor", MakeTensor)
      .def("tests.guarded.address", Address)
      .def("tests.guarded.offset", [](Tensor tensor) { return static_cast<int64_t>(tensor.byte_offset()); })
      .def("tests.guarded.bytes", Bytes)
      .def("tests.guarded.overrun", Overrun);
  Register();
}

}  // namespace
