// What a program can say of a storage that it is about to allocate.
#pragma once

#include <string>

namespace symalloc {

struct AllocationHint {
  std::string tag;
  bool escapes = false;  // its tensors may outlive the call
};

// What the calling thread says of the storage that it allocates now; nullptr: nothing.
const AllocationHint* CurrentHint();

// Registers `symalloc.pool.alloc_storage`: TVM's function with two more arguments, a tag and whether it
// escapes.
void NameStorages();

}  // namespace symalloc
