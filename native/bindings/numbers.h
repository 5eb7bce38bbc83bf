// Numbers that Python hands over as bytes, and back; and arrays that both share.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "packer/problem.h"

namespace symalloc::packer {

template <typename T>
std::vector<T> Numbers(const tvm::ffi::Bytes& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(T));
  return numbers;
}

template <typename T>
tvm::ffi::Bytes BytesOf(const std::vector<T>& numbers) {
  return tvm::ffi::Bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}

// An array of `count` float64 that Python sees, too.
inline double* ValuesOf(const tvm::ffi::TensorView& array, size_t count) {
  const DLDataType type = array.dtype();
  if (type.code != kDLFloat || type.bits != 64 || type.lanes != 1 || array.device().device_type != kDLCPU ||
      !array.IsContiguous() || static_cast<size_t>(array.numel()) != count) {
    throw tvm::ffi::Error("ValueError", "an array is not of float64, in one piece, or as long as it must be", "");
  }
  return static_cast<double*>(array.data_ptr()) + array.byte_offset() / sizeof(double);
}

inline std::vector<double> Numbers(const tvm::ffi::TensorView& array) {
  const double* values = ValuesOf(array, array.numel());
  return std::vector<double>(values, values + array.numel());
}

// From the number of lists, where each starts, where the last one ends, and all items.
inline Lists ListsOf(const tvm::ffi::Bytes& bytes) {
  std::vector<int32_t> numbers = Numbers<int32_t>(bytes);
  const int64_t items = numbers.empty() ? -1 : static_cast<int64_t>(numbers.size()) - numbers[0] - 2;
  if (items < 0 || numbers[0] < 0 || numbers[1] != 0 || numbers[numbers[0] + 1] != items ||
      !std::is_sorted(numbers.begin() + 1, numbers.begin() + numbers[0] + 2)) {
    throw tvm::ffi::Error("ValueError", "lists do not start and end where they are said to", "");
  }
  return Lists(numbers.data() + 1, numbers.data() + numbers[0] + 2, numbers[0]);
}

}  // namespace symalloc::packer
