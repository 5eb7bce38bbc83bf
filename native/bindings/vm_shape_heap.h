// Shape heaps: the tensor in which a function of the virtual machine keeps its sizes while it runs.
#pragma once

namespace symalloc {

// Has machines on a pool, made from now on, keep their heaps from call to call instead of asking the pool at
// each.
void KeepShapeHeaps();

}  // namespace symalloc
