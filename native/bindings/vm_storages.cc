#include "bindings/vm_storages.h"

#include <pthread.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "bindings/pool_use.h"
#include "bindings/vm_allocator.h"
#include "bindings/vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int32_t kArguments = 5;  // and a tag

// How often a machine began or ceased to keep a pool.
std::atomic<uint64_t> changes{1};

// Machines and the pools that they keep.
class KeptPools {
 public:
  static KeptPools& Global() {
    static KeptPools* pools = [] {
      pthread_atfork([] { Global().mutex_.lock(); }, [] { Global().mutex_.unlock(); }, [] { Global().mutex_.unlock(); });
      return new KeptPools();  // outlives every machine
    }();
    return *pools;
  }

  void Add(const void* machine, const PoolObj* pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.emplace(machine, pool);
    ++changes;
  }
  void Remove(const void* machine, const PoolObj* pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.erase({machine, pool});
    ++changes;
  }

  // The count of changes that it is the answer for.
  std::pair<bool, uint64_t> Has(const void* machine, const PoolObj* pool) {
    std::lock_guard<std::mutex> lock(mutex_);
    return {kept_.count({machine, pool}) != 0, changes};
  }

 private:
  std::mutex mutex_;
  std::set<std::pair<const void*, const PoolObj*>> kept_;
};

// While it lives no other machine comes to lie at the same address.
class MachineUse final : public PoolUse {
 public:
  MachineUse(const ffi::Module& machine, PoolRef pool)
      : PoolUse(pool),
        at_(machine.get()),
        pool_(pool.get()),
        machine_(ffi::details::ObjectUnsafe::ObjectPtrFromObjectRef<ffi::ModuleObj>(machine)) {
    KeptPools::Global().Add(at_, pool_);
  }
  ~MachineUse() { KeptPools::Global().Remove(at_, pool_); }

 private:
  const void* at_;
  const PoolObj* pool_;
  ffi::WeakObjectPtr<ffi::ModuleObj> machine_;
};

// What a thread knows of a device of a machine.
struct Known {
  const void* machine;
  uint64_t changes;  // when that was found
  int64_t device;
  PoolAllocator* allocator;  // of the pool that the machine keeps; nullptr: TVM is to be asked
};

constexpr size_t kKnown = 2;  // of the little room that a process has for such variables
// not thread_local: that costs a call
__attribute__((tls_model("initial-exec"))) __thread Known known_devices[kKnown];

Known& PlaceOf(const void* machine) { return known_devices[reinterpret_cast<uintptr_t>(machine) / 64 % kKnown]; }

// A program has it as a string of either kind.
bool IsScope(const ffi::AnyView& argument) {
  TVMFFIAny text = argument.CopyToTVMFFIAny();
  TVMFFIByteArray bytes{nullptr, 0};
  if (text.type_index == kTVMFFIStr) {
    bytes = *TVMFFIBytesGetByteArrayPtr(text.v_obj);
  } else if (text.type_index == kTVMFFISmallStr) {
    bytes = {text.v_bytes, text.small_str_len};
  }
  return bytes.size == kScope.size() && std::memcmp(bytes.data, kScope.data(), kScope.size()) == 0;
}

// The address of a machine does not tell its allocators.  The first storage that TVM makes for one of its devices does.
struct AllocStorage {
  ffi::Function stock;

  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    if (count <= kArguments) return Make(args, count, {}, result);
    ffi::String tag = args[kArguments].cast<ffi::String>();
    Make(args, kArguments, {tag.data(), tag.size()}, result);
  }

  void Make(const ffi::AnyView* args, int32_t count, std::string_view tag, ffi::Any* result) const {
    bool usual = count == kArguments && args[0].type_index() == kTVMFFIOpaquePtr && args[1].type_index() == kTVMFFIShape &&
                 args[2].type_index() == kTVMFFIInt && args[3].type_index() == kTVMFFIDataType && IsScope(args[4]);
    if (!usual) return MakeByTvm(args, count, tag, result);
    const void* machine = args[0].CopyToTVMFFIAny().v_ptr;
    int64_t device = args[2].CopyToTVMFFIAny().v_int64;
    const Known& known = PlaceOf(machine);
    if (known.machine != machine || known.device != device || known.changes != changes.load(std::memory_order_relaxed)) {
      MakeByTvm(args, count, tag, result);
      return Find(machine, device, *result);
    }
    if (known.allocator == nullptr) return MakeByTvm(args, count, tag, result);
    const auto* shape = args[1].as<ffi::ShapeObj>();
    int64_t nbytes = StorageBytes({shape->data, shape->size}, args[3].CopyToTVMFFIAny().v_dtype);
    *result = known.allocator->MakeStorage(nbytes, tag);
  }

  void MakeByTvm(const ffi::AnyView* args, int32_t count, std::string_view tag, ffi::Any* result) const {
    TagScope scope(tag);
    stock.CallPacked(args, count, result);
  }

  static void Find(const void* machine, int64_t device, const ffi::Any& made) {
    const VmStorage* storage = AsStorage(made);
    PoolAllocator* allocator = storage == nullptr ? nullptr : AllocatorOf(*storage);
    auto [kept, found] = KeptPools::Global().Has(machine, allocator == nullptr ? nullptr : allocator->pool());
    PlaceOf(machine) = Known{machine, found, device, kept ? allocator : nullptr};
  }
};

}  // namespace

ffi::Module UseByMachine(const ffi::Module& machine, PoolRef pool) {
  return ffi::Module(ffi::make_object<MachineUse>(machine, std::move(pool)));
}

ffi::Function AllocStorageOn(ffi::Function stock) { return ffi::Function::FromPacked(AllocStorage{std::move(stock)}); }

}  // namespace symalloc
