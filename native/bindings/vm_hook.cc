// TVM's memory manager asks a global function for allocators of types that it does not know: the function
// is named "DeviceAllocator." and the device's suffix, which is empty for a CPU.  It answers with a pointer
// to an object that must look like TVM's allocators; nothing of libtvm_runtime is linked.
// The memory manager keeps each allocator for as long as the process, and does not say when a machine goes.  So an
// allocator knows its pool weakly.  A pool is kept by its users (pool_use.h) and by each storage that it has served.
#include "bindings/vm_hook.h"

#include <pthread.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/pool_use.h"
#include "bindings/tensor_placement.h"
#include "bindings/vm_builtins.h"
#include "bindings/vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMostTypes = 1 << 16;  // at a time
constexpr int kMostForeign = 256;       // types of other libraries in a row
constexpr const char* kAllocators = "DeviceAllocator.";
constexpr std::string_view kScope = "global";  // the only one

using Unsafe = ffi::details::ObjectUnsafe;

// not thread_local: that costs a call
__attribute__((tls_model("initial-exec"))) __thread const void* last_served = nullptr;

// A type of allocators, for one pool at a time.
struct PoolType {
  explicit PoolType(int number) : number(number) {}

  const int number;
  std::atomic<VmAllocator*> allocator{nullptr};  // the memory manager owns it
  ffi::WeakObjectPtr<PoolObj> pool;              // changed under `Hook::giving`, while no machine has this type
  std::atomic<PoolObj*> known{nullptr};          // the same; sound while a user or a storage keeps the pool
  std::atomic<bool> outlived{false};             // a machine has this type that no pool knows of: it is not used again
};

class PoolAllocator final : public VmAllocator {
 public:
  explicit PoolAllocator(PoolType* type) : VmAllocator(type->number), pool_type_(type) {}

  VmBuffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType) override {
    return Served(nbytes, device, [&](PoolObj* pool) { return pool->Alloc(nbytes, alignment, false, ""); });
  }

  VmBuffer Alloc(DLDevice device, ffi::Shape shape, DLDataType dtype, const std::string& scope) override {
    if (!AllowMemoryScope(scope)) {
      throw ffi::Error("ValueError", "the pool holds memory of scope `global` only, not `" + scope + "`", "");
    }
    int64_t nbytes = Bytes(shape, dtype);
    if (nbytes < 0) {
      throw ffi::Error("BoundsError", "a storage, " + Text(shape, dtype) +
                                          ", has a negative size, or more bytes than 64 bits can count", "");
    }
    const AllocationHint* hint = CurrentHint();
    if (hint == nullptr) return Alloc(device, static_cast<size_t>(nbytes), kAlignment, dtype);
    return Served(static_cast<size_t>(nbytes), device,
                  [&](PoolObj* pool) { return pool->Take(nbytes, kAlignment, hint->escapes, hint->tag); });
  }

  void* CreateView(const VmBuffer& buffer, ffi::Shape, DLDataType, const std::string&) override {
    return buffer.data;
  }
  void FreeView(DLDevice, void*) override {}

  void Free(const VmBuffer& buffer) override {
    PoolObj* pool = pool_type_->known.load(std::memory_order_relaxed);
    FreeQuietly(&pool->pool, buffer.data, static_cast<int64_t>(buffer.size));
    Unsafe::DecRefObjectHandle(pool);
  }

  void Clear() override {
    if (ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock()) pool->pool.Trim();
  }
  size_t UsedMemory() const override {
    ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock();
    return pool == nullptr ? 0 : static_cast<size_t>(pool->pool.statistics().reserved);
  }

 protected:
  // std::string compares by two calls, which are a twentieth of all that a storage costs.
  bool AllowMemoryScope(const std::string& scope) const override {
    return scope.empty() || (scope.size() == kScope.size() && std::memcmp(scope.data(), kScope.data(), kScope.size()) == 0);
  }

 private:
  // What `take` takes from the pool, which the buffer keeps until it is freed.
  template <typename Take>
  VmBuffer Served(size_t nbytes, DLDevice device, Take take) {
    ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock();
    if (pool == nullptr || pool->users.load(std::memory_order_relaxed) == 0) {
      pool_type_->outlived = true;
      throw ffi::Error("PoolUsageError",
                       "the pool of this machine is gone: a machine that was not made by relax.VirtualMachine with "
                       "symalloc.memory_cfg does not keep its pool", "");
    }
    void* data = Translated([&] { return take(pool.get()); });
    Unsafe::MoveObjectPtrToTVMFFIObjectPtr(std::move(pool));
    last_served = data;
    return VmBuffer{data, nbytes, device, type_};
  }

  PoolType* pool_type_;
};

// By number - kFirstType; they stay for as long as the process.
std::atomic<PoolType*> pool_types[kMostTypes];

PoolType* TypeOf(int number) {
  size_t index = static_cast<size_t>(number) - kFirstType;
  return index < kMostTypes ? pool_types[index].load(std::memory_order_acquire) : nullptr;
}

[[noreturn]] void RefuseHook(const std::string& why) { throw ffi::Error("HookError", why, ""); }

constexpr const char* kLater =
    "another library has registered the global function `DeviceAllocator.` after symalloc, and does not hand on the "
    "types that it does not know; load that library before the first pool of the process serves a machine";

// The number that this thread asks the registered function about; 0: none.
thread_local int asked = 0;
thread_local bool answered = false;  // this library was asked, too
thread_local bool passing = false;   // this thread is in the function that was registered before

struct Hook {
  std::mutex mutex;  // guards the next two; a pool may go, and take it, while its thread holds Python's lock
  std::vector<PoolType*> unused;
  std::map<int, void*> foreign;  // allocators of other libraries, which they made when they were asked

  std::mutex giving;  // guards the rest, and giving types to pools; held while other libraries are asked
  int next = kFirstType;
  std::optional<ffi::Function> before;  // whose allocators are of other types
  bool registered = false;

  static Hook& Global() {
    static Hook* hook = [] {
      pthread_atfork(BeforeFork, AfterFork, [] {
        AfterFork();
        new (&Global().giving) std::mutex();  // whoever held it is not in this process
      });
      return new Hook();  // outlives the memory manager
    }();
    return *hook;
  }
  static void BeforeFork() { Global().mutex.lock(); }
  static void AfterFork() { Global().mutex.unlock(); }

  void* Make(DLDevice device, int number) {
    if (asked == number) {
      answered = true;
      return nullptr;
    }
    bool served = device.device_type == kDLCPU && device.device_id == 0;
    if (PoolType* type = served ? TypeOf(number) : nullptr) {
      auto* made = new PoolAllocator(type);
      type->allocator.store(made, std::memory_order_release);
      return made;
    }
    if (void* made = served ? TakeForeign(number) : nullptr) return made;
    return Pass(device, number);
  }

  void* TakeForeign(int number) {
    std::lock_guard<std::mutex> lock(mutex);
    auto found = foreign.find(number);
    if (found == foreign.end()) return nullptr;
    void* made = found->second;
    foreign.erase(found);
    return made;
  }

  // What the function that was registered before answers.  One that was registered later, too, may ask this again.
  void* Pass(DLDevice device, int number) {
    if (!before.has_value() || passing) return nullptr;
    struct Scope {
      Scope() { passing = true; }
      ~Scope() { passing = false; }
    } scope;
    return (*before)(device, number).cast<void*>();
  }

  void Register() {
    if (registered) return;
    if (!ffi::Function::GetGlobal("vm.builtin.alloc_storage").has_value()) {
      RefuseHook("TVM's runtime is not in this process: link libtvm_runtime to the program, or load it before");
    }
    before = ffi::Function::GetGlobal(kAllocators);
    auto make = [](DLDevice device, int number) { return Hook::Global().Make(device, number); };
    ffi::Function::SetGlobal(kAllocators, ffi::Function::FromTyped(make), true);
    ReplaceBuiltins();
    registered = true;
  }

  // A type that no pool has.
  PoolType* Unused() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (!unused.empty()) {
        PoolType* type = unused.back();
        unused.pop_back();
        return type;
      }
    }
    for (int tries = 0; tries < kMostForeign; ++tries) {
      int number = next;
      size_t index = static_cast<size_t>(number) - kFirstType;
      if (index >= kMostTypes) break;
      ++next;
      if (IsForeign(number)) continue;
      auto* type = new PoolType(number);
      pool_types[index].store(type, std::memory_order_release);
      return type;
    }
    RefuseHook("no allocator type is left for a pool: other libraries have them all, or 65,536 pools are in use");
  }

  // What `make` makes; nullptr where it throws: some say so that they do not know a type.
  template <typename Make>
  static void* Made(Make make) {
    try {
      return make();
    } catch (const ffi::Error&) {
      return nullptr;
    }
  }

  // True where another library makes allocators of this type.
  bool IsForeign(int number) {
    struct Scope {
      explicit Scope(int number) { asked = number, answered = false; }
      ~Scope() { asked = 0; }
    };
    DLDevice cpu{kDLCPU, 0};
    void* made = Made([&] { return Pass(cpu, number); });
    if (made == nullptr) {
      Scope scope(number);
      made = Made([&] { return (*ffi::Function::GetGlobal(kAllocators))(cpu, number).cast<void*>(); });
      if (made == nullptr && !answered) RefuseHook(kLater);
    }
    if (made == nullptr) return false;
    std::lock_guard<std::mutex> lock(mutex);
    foreign[number] = made;
    return true;
  }
};

}  // namespace

const void* LastServed() { return last_served; }
void ForgetLastServed() { last_served = nullptr; }

PoolObj* PoolOf(const VmStorage& storage) {
  PoolType* type = TypeOf(storage.buffer.alloc_type);
  bool ours = type != nullptr && type->allocator.load(std::memory_order_acquire) == storage.allocator;
  return ours ? type->known.load(std::memory_order_relaxed) : nullptr;
}

int64_t VmType(PoolRef pool) {
  Hook& hook = Hook::Global();
  std::lock_guard<std::mutex> lock(hook.giving);
  if (pool->vm_type >= 0) return pool->vm_type;
  hook.Register();
  PoolType* type = hook.Unused();
  type->pool = ffi::WeakObjectPtr<PoolObj>(Unsafe::ObjectPtrFromUnowned<PoolObj>(const_cast<PoolObj*>(pool.get())));
  type->known.store(const_cast<PoolObj*>(pool.get()), std::memory_order_release);
  pool->vm_type = type->number;
  return type->number;
}

void ReleaseVmType(int number) {
  Hook& hook = Hook::Global();
  std::lock_guard<std::mutex> lock(hook.mutex);
  PoolType* type = TypeOf(number);
  if (!type->outlived.load()) hook.unused.push_back(type);
}

void KeepPool(ffi::Module machine, PoolRef pool) {
  PoolType* type = TypeOf(pool->vm_type);
  if (type == nullptr || type->allocator.load(std::memory_order_acquire) == nullptr) RefuseHook(kLater);
  machine->ImportModule(PoolUse::Of(std::move(pool)));
}

ffi::String StorageFault(ffi::AnyView value, int64_t type, int64_t nbytes) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) return "what a program allocates is no vm.Storage but " + value.GetTypeKey();
  const VmBuffer& buffer = storage->buffer;
  if (buffer.alloc_type != type) return "a storage does not hold the type of its allocator where 0.27's does";
  if (buffer.size != static_cast<size_t>(nbytes)) return "a storage does not hold its size where 0.27's does";
  if (buffer.device.device_type != kDLCPU || buffer.device.device_id != 0) {
    return "a storage does not hold its device where 0.27's does";
  }
  PoolObj* pool = PoolOf(*storage);
  if (pool == nullptr) return "a storage does not hold its allocator where 0.27's does";
  if (!pool->pool.owns(buffer.data)) return "a storage does not hold its memory where 0.27's does";
  return "";
}

namespace {

// The bytes reserved by the allocator of `value`, a storage.
int64_t ReservedFor(ffi::AnyView value) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) throw ffi::Error("TypeError", "expected a vm.Storage, not " + value.GetTypeKey(), "");
  return static_cast<int64_t>(storage->allocator->UsedMemory());
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.vm_type", VmType)
      .def("symalloc.pool.use", PoolUse::Of)
      .def("symalloc.pool.keep_pool", KeepPool)
      .def("symalloc.pool.storage_fault", StorageFault)
      .def("symalloc.pool.reserved_for", ReservedFor);
}

}  // namespace symalloc
