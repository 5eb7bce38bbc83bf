// Loads planned libraries with TVM's runtime alone and calls them: with 3 rows, and with too many.  Those that
// tell how large their arena is get one, first of a byte too few, then at no multiple of 64.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <cstdio>
#include <cstdlib>

namespace ffi = tvm::ffi;

struct Nothing {
  void AllocData(DLTensor* tensor) {
    size_t nbytes = tensor->ndim == 1 ? tensor->shape[0] : 0;
    tensor->data = std::aligned_alloc(64, (nbytes + 64) / 64 * 64);
  }
  void FreeData(DLTensor* tensor) { std::free(tensor->data); }
};

struct Astray : Nothing {
  void AllocData(DLTensor* tensor) {
    Nothing::AllocData(tensor);
    tensor->data = static_cast<char*>(tensor->data) + 4;
  }
  void FreeData(DLTensor* tensor) { std::free(static_cast<char*>(tensor->data) - 4); }
};

int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    ffi::Module library = ffi::Module::LoadFromFile(names[i]);
    auto machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
    machine->GetFunction("vm_initialization").value()(int(kDLCPU), 0, 2);  // the pooled allocator
    for (int64_t rows : {int64_t{3}, int64_t{1} << 56}) {
      try {
        auto x = ffi::Tensor::FromNDAlloc(Nothing{}, {rows, 0}, DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
        auto run = machine->GetFunction("main").value();
        auto bytes = machine->GetFunction("main_bytes");
        if (!bytes.has_value()) {
          std::printf("%g\n", *static_cast<float*>(run(x).cast<ffi::Tensor>().data_ptr()));
          continue;
        }
        int64_t needed = bytes.value()(ffi::Shape({rows})).cast<int64_t>();
        const DLDataType byte{kDLUInt, 8, 1};
        for (auto arena : {ffi::Tensor::FromNDAlloc(Nothing{}, {needed - 1}, byte, x.device()),
                           ffi::Tensor::FromNDAlloc(Astray{}, {needed}, byte, x.device()),
                           ffi::Tensor::FromNDAlloc(Nothing{}, {needed}, byte, x.device())}) {
          try {
            std::printf("%g\n", *static_cast<float*>(run(x, arena).cast<ffi::Tensor>().data_ptr()));
          } catch (const ffi::Error& error) {
            std::printf("%lld: %s\n", static_cast<long long>(needed), error.message().c_str());
          }
        }
      } catch (const ffi::Error& error) {
        std::printf("%s %s\n", error.kind().c_str(), error.message().c_str());
      }
    }
  }
}
