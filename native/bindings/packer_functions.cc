// The exact packer's functions for tvm-ffi: symalloc/native/native_functions.pyi has their types.
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/numbers.h"
#include "bindings/translated.h"
#include "packer/first_fit.h"
#include "packer/search.h"

namespace symalloc::packer {

namespace ffi = tvm::ffi;

namespace {

class SearchObj : public ffi::Object {
 public:
  explicit SearchObj(Problem problem) : search(std::move(problem)) {}

  Search search;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.packer.Search", SearchObj, ffi::Object);
};

class SearchRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(SearchRef, ffi::ObjectRef, SearchObj);
};

constexpr char kWhat[] = "the search";  // that memory is for

SearchRef Create(int64_t capacity, ffi::Bytes sizes, ffi::Bytes alignments, ffi::Bytes lowest, ffi::Bytes highest,
                 ffi::Bytes cliques, ffi::Bytes members, ffi::Bytes neighbours) {
  auto make = [&] {
    return SearchRef(ffi::make_object<SearchObj>(Problem{
        capacity,
        Numbers<int64_t>(sizes),
        Numbers<int64_t>(alignments),
        Numbers<int64_t>(lowest),
        Numbers<int64_t>(highest),
        ListsOf(cliques),
        ListsOf(members),
        ListsOf(neighbours),
    }));
  };
  return Translated(make, kWhat);
}

// Begins an attempt with one priority for each buffer.
void Begin(SearchRef search, ffi::Bytes priorities, int32_t rule, double share) {
  Translated([&] { search->search.Begin(Numbers<int32_t>(priorities), static_cast<Rule>(rule), share); }, kWhat);
}

// Goes on for at most `steps` steps; an Outcome.
int64_t Go(SearchRef search, int64_t steps) {
  return Translated([&] { return static_cast<int64_t>(search->search.Go(steps)); }, kWhat);
}

int64_t Steps(SearchRef search) { return search->search.steps(); }

// The lowest offset of each buffer, in units: the packing where one was found.
ffi::Bytes Offsets(SearchRef search) {
  std::vector<int64_t> offsets;
  for (int32_t i = 0; i < search->search.state().problem().count(); ++i) {
    offsets.push_back(search->search.state().lowest(i));
  }
  return BytesOf(offsets);
}

class FirstFitObj : public ffi::Object {
 public:
  explicit FirstFitObj(FirstFit empty) : memory(std::move(empty)) {}

  FirstFit memory;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.packer.FirstFit", FirstFitObj, ffi::Object);
};

class FirstFitRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(FirstFitRef, ffi::ObjectRef, FirstFitObj);
};

FirstFitRef MakeFirstFit(ffi::Bytes sizes, ffi::Bytes alignments, ffi::Bytes lives) {
  const auto make = [&] {
    FirstFit empty(Numbers<int64_t>(sizes), Numbers<int64_t>(alignments), ListsOf(lives));
    return FirstFitRef(ffi::make_object<FirstFitObj>(std::move(empty)));
  };
  return Translated(make, kWhat);
}

void Lay(FirstFitRef first_fit, int32_t buffer, int64_t offset) {
  Translated([&] { first_fit->memory.Lay(buffer, offset); }, kWhat);
}

// How many buffers were looked at so far, and the offset of each of `order`.
ffi::Bytes Put(FirstFitRef first_fit, ffi::Bytes order, bool smallest) {
  const auto put = [&] {
    std::vector<int64_t> answer{0};
    for (int32_t buffer : Numbers<int32_t>(order)) answer.push_back(first_fit->memory.Put(buffer, smallest));
    answer.front() = first_fit->memory.looks();
    return BytesOf(answer);
  };
  return Translated(put, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<SearchObj>();
  ffi::reflection::ObjectDef<FirstFitObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.packer.create", Create)
      .def("symalloc.packer.begin", Begin)
      .def("symalloc.packer.go", Go)
      .def("symalloc.packer.steps", Steps)
      .def("symalloc.packer.offsets", Offsets)
      .def("symalloc.packer.first_fit", MakeFirstFit)
      .def("symalloc.packer.lay", Lay)
      .def("symalloc.packer.put", Put);
}

}  // namespace symalloc::packer
