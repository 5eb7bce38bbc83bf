// TVM's memory manager asks a global function for allocators of types that it does not know: the function
// is named "DeviceAllocator." and the device's suffix, which is empty for a CPU.  It answers with a pointer
// to an object that must look like TVM's allocators; nothing of libtvm_runtime is linked.
#include "bindings/vm_hook.h"

#include <pthread.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/pool_use.h"
#include "bindings/vm_allocator.h"
#include "bindings/vm_builtins.h"
#include "bindings/vm_layout.h"
#include "bindings/vm_storages.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int kMostForeign = 256;  // types of other libraries in a row
constexpr const char* kAllocators = "DeviceAllocator.";

using Unsafe = ffi::details::ObjectUnsafe;

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
      return AddType(number);
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
  machine->ImportModule(UseByMachine(machine, std::move(pool)));
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
