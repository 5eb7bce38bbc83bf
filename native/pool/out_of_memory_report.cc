#include "pool/out_of_memory_report.h"

namespace symalloc {

namespace {

std::string Bytes(int64_t count) { return std::to_string(count) + (count == 1 ? " byte" : " bytes"); }

}  // namespace

std::string OutOfMemoryReport::Text() const {
  int64_t spare = reserved - in_use - in_bins;
  int64_t lacking = reserved + missing - limit;
  std::string text = Bytes(size) + " do not fit under the limit of " + std::to_string(limit) + ": " +
                     std::to_string(in_use) + " are in use, " + std::to_string(reserved) + " reserved";
  if (in_bins > 0) text += ", " + std::to_string(in_bins) + " wait in the bins of other threads";
  if (spare > 0) {
    text += ", " + std::to_string(spare) + " are free within pages that are in use, at most " +
            std::to_string(piece) + " of them in one piece";
  }
  text += "\n  help: raise the limit by " + Bytes(lacking) + ", or free as much, or run at smaller shapes";
  if (in_bins > 0) text += "; trim() in the threads that hold bins, or a lower bin_capacity, frees what waits there";
  return text;
}

std::string NoAddressSpace(int64_t size, int64_t piece, int64_t capacity) {
  return "no " + Bytes(size) + " of address space are free in one piece: the largest has " + Bytes(piece) + " of " +
         std::to_string(capacity) + "\n  help: a larger capacity would help";
}

}  // namespace symalloc
