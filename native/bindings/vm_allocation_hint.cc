#include "bindings/vm_allocation_hint.h"

#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kStock = "vm.builtin.alloc_storage";
constexpr const char* kNamed = "symalloc.pool.alloc_storage";
constexpr int32_t kStockCount = 5;  // machine, shape, device index, dtype, scope

thread_local const AllocationHint* current = nullptr;

struct Named {
  ffi::Function stock;

  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    if (count < kStockCount + 2) {
      stock.CallPacked(args, count, result);
      return;
    }
    AllocationHint hint{std::string(args[kStockCount].cast<ffi::String>()), args[kStockCount + 1].cast<bool>()};
    struct Scope {
      explicit Scope(const AllocationHint* hint) { current = hint; }
      ~Scope() { current = nullptr; }
    } scope(&hint);
    stock.CallPacked(args, kStockCount, result);
  }
};

}  // namespace

const AllocationHint* CurrentHint() { return current; }

void NameStorages() {
  Named named{ffi::Function::GetGlobalRequired(kStock)};
  ffi::Function::SetGlobal(kNamed, ffi::Function::FromPacked(named), true);
}

}  // namespace symalloc
