// Loads planned libraries with TVM's runtime alone and calls them: with 3 rows, and with too many.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdio>
#include <cstdlib>

namespace ffi = tvm::ffi;

struct Nothing {
  void AllocData(DLTensor* tensor) { tensor->data = std::aligned_alloc(64, 64); }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    ffi::Module library = ffi::Module::LoadFromFile(names[i]);
    auto machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
    machine->GetFunction("vm_initialization").value()(int(kDLCPU), 0, 2);  // the pooled allocator
    for (int64_t rows : {int64_t{3}, int64_t{1} << 56}) {
      try {
        auto x = ffi::Tensor::FromNDAlloc(Nothing{}, {rows, 0}, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
        auto y = machine->GetFunction("main").value()(x).cast<ffi::Tensor>();
        std::printf("%g\n", *static_cast<float*>(y.data_ptr()));
      } catch (const ffi::Error& error) {
        std::printf("%s %s\n", error.kind().c_str(), error.message().c_str());
      }
    }
  }
}
