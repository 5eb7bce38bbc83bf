// Reading Relax modules: symalloc/native/native_functions.pyi has the types of these functions.
//
// TVM's headers are not installed with it, so fields are found by their names, through tvm-ffi's reflection.
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/numbers.h"
#include "bindings/translated.h"

namespace symalloc::module {

namespace ffi = tvm::ffi;

namespace {

using Unsafe = ffi::details::ObjectUnsafe;
using Field = ffi::reflection::FieldGetter;
using ffi::TypeIndex;
using Row = std::vector<int64_t>;

constexpr char kWhat[] = "reading a module";  // that memory is for

int64_t AddressOf(const ffi::Object* object) { return reinterpret_cast<int64_t>(object); }

const ffi::Object* ObjectIn(const ffi::Any& value) { return value.as<ffi::Object>(); }

int32_t IndexOf(std::string_view key) {
  const TVMFFIByteArray name{key.data(), key.size()};
  int32_t index = 0;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&name, &index));
  return index;
}

// A field that holds an object.  Objects are seen without a reference of their own: what holds them stays.
class ObjectField {
 public:
  ObjectField(std::string_view type, const char* name)
      : info_(ffi::reflection::GetFieldInfo(type, name)),
        plain_(info_->size == sizeof(void*) && info_->field_static_type_index >= TypeIndex::kTVMFFIStaticObjectBegin),
        getter_(info_) {}

  const ffi::Object* operator()(const ffi::Object* of) const {
    if (!plain_) return ObjectIn(getter_(of));
    return *reinterpret_cast<ffi::Object* const*>(reinterpret_cast<const char*>(of) + info_->offset);
  }

 private:
  const TVMFFIFieldInfo* const info_;
  const bool plain_;  // a pointer
  const Field getter_;
};

// The classes and fields of TVM's that a binding consists of.
struct Schema {
  const int32_t binding = IndexOf("relax.expr.VarBinding"), var = IndexOf("ir.Var"),
                dataflow_var = IndexOf("relax.expr.DataflowVar"), call = IndexOf("ir.Call"),
                global_var = IndexOf("ir.GlobalVar"), shape = IndexOf("relax.expr.ShapeExpr"),
                constant = IndexOf("ir.GenericConst"), text = IndexOf("ir.StringImm"), integer = IndexOf("ir.IntImm"),
                tensor = IndexOf("relax.TensorType"), prim = IndexOf("ir.PrimType"), tuple = IndexOf("ir.TupleType");
  const ObjectField bound{"relax.expr.Binding", "var"}, value{"relax.expr.VarBinding", "value"}, type{"ir.Expr", "ty"},
      op{"ir.Call", "op"}, args{"ir.Call", "args"}, extents{"relax.expr.ShapeExpr", "values"},
      tensor_shape{"relax.TensorType", "shape"}, tensor_dtype{"relax.TensorType", "dtype"},
      tensor_device{"relax.TensorType", "vdevice"}, fields{"ir.TupleType", "fields"};
  const Field name{"ir.Var", "name"}, content{"ir.GenericConst", "value"}, letters{"ir.StringImm", "value"},
      number{"ir.IntImm", "value"}, tensor_ndim{"relax.TensorType", "ndim"}, prim_dtype{"ir.PrimType", "dtype"};

  bool IsVar(const ffi::Object* node) const {
    return node != nullptr && (node->type_index() == var || node->type_index() == dataflow_var);
  }
};

bool Is(const ffi::Object* node, int32_t index) { return node != nullptr && node->type_index() == index; }

// The items of an array.
const ffi::ArrayObj& ItemsOf(const ffi::Object* array) {
  if (!Is(array, TypeIndex::kTVMFFIArray)) throw ffi::Error("TypeError", "an array was expected", "");
  return *static_cast<const ffi::ArrayObj*>(array);
}

ffi::Any Owned(const ffi::Object* object) {
  return ffi::ObjectRef(Unsafe::ObjectPtrFromUnowned<ffi::Object>(const_cast<ffi::Object*>(object)));
}

// Numbers things that are alike, the first of each kept.
class Kinds {
 public:
  int64_t Of(const Row& key, const ffi::Object* one) {
    const auto known = numbers_.find(key);
    if (known != numbers_.end()) return known->second;
    const auto number = static_cast<int64_t>(kept_.size());
    numbers_.emplace(key, number);
    kept_.push_back(Owned(one));
    return number;
  }

  // By its address.
  int64_t Of(const ffi::Object* one) {
    alone_.assign(1, AddressOf(one));
    return Of(alone_, one);
  }

  const ffi::Array<ffi::Any>& kept() const { return kept_; }

 private:
  struct Hash {
    size_t operator()(const Row& key) const {
      uint64_t hash = key.size();
      for (int64_t one : key) hash = (hash ^ static_cast<uint64_t>(one)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
      return hash;
    }
  };

  std::unordered_map<Row, int64_t, Hash> numbers_;
  ffi::Array<ffi::Any> kept_;
  Row alone_;
};

// What a row says first.
enum Kind : int64_t { kOther, kAlias, kKernel, kAllocation };

class Reader {
 public:
  explicit Reader(const ffi::Object* allocates) : allocates_(allocates) {}

  // The objects of a large function lie in no cache: those of bindings further on are fetched, level by level.
  void ReadAll(const ffi::Array<ffi::Any>& bindings) {
    const ffi::ArrayObj& all = ItemsOf(bindings.get());
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t level = 0; level < kLevels; ++level) {
        const size_t ahead = i + (kLevels - level) * kApart;
        if (ahead < all.size()) Fetch(ObjectIn(all.at(ahead)), level);
      }
      Read(ObjectIn(all.at(i)));
    }
  }

  ffi::Array<ffi::Any> Answer() const {
    return {packer::BytesOf(rows_), ffi::String(names_), types_.kept(), allocations_.kept(), callees_.kept(),
            literals_.kept()};
  }

 private:
  static constexpr size_t kLevels = 6, kApart = 6;  // bindings between one level and the next

  // Has the cache fetch the objects of a binding on one level, those on the levels before being there.
  void Fetch(const ffi::Object* binding, size_t level) const {
    if (level == 0) return __builtin_prefetch(binding);
    if (!Is(binding, schema_.binding)) return;
    const ffi::Object *var = schema_.bound(binding), *value = schema_.value(binding);
    if (level == 1) {
      __builtin_prefetch(var);
      return __builtin_prefetch(value);
    }
    const ffi::Object *type = schema_.type(var), *args = Is(value, schema_.call) ? schema_.args(value) : nullptr;
    if (level == 2) {
      __builtin_prefetch(type);
      return __builtin_prefetch(args);
    }
    const ffi::Object* shape = Is(type, schema_.tensor) ? schema_.tensor_shape(type) : nullptr;
    if (level == 3) {
      __builtin_prefetch(shape);
      return FetchItems(args);
    }
    const ffi::Object* extents = Is(shape, schema_.shape) ? schema_.extents(shape) : nullptr;
    if (level == 4) return __builtin_prefetch(extents);
    FetchItems(extents);
  }

  static void FetchItems(const ffi::Object* array) {
    if (array == nullptr) return;
    for (const ffi::Any& item : ItemsOf(array)) __builtin_prefetch(ObjectIn(item));
  }

  void Read(const ffi::Object* node) {
    const size_t begin = rows_.size();
    if (Is(node, schema_.binding) && Known(node)) return;
    rows_.resize(begin);
    rows_.push_back(kOther);
  }

  // Writes the row of a binding of one of the plain kinds; where it is none, a part of one may be written.
  bool Known(const ffi::Object* binding) {
    const ffi::Object* var = schema_.bound(binding);
    const ffi::Object* type = schema_.type(var);
    if (type == nullptr || Is(type, schema_.prim)) return false;
    rows_.insert(rows_.end(), {kOther, AddressOf(var), 0});
    const size_t kind = rows_.size() - 3;
    if (!AddValue(schema_.value(binding), kind)) return false;
    const ffi::Any name = schema_.name(var);
    const auto letters = name.cast<ffi::String>();
    if (std::find(letters.data(), letters.data() + letters.size(), '\n') != letters.data() + letters.size()) return false;
    names_.append(letters.data(), letters.size()) += '\n';
    rows_[kind + 2] = TypeOf(type);
    return true;
  }

  // What is bound, behind the variable; its kind goes to the place `kind`.
  bool AddValue(const ffi::Object* value, size_t kind) {
    if (schema_.IsVar(value)) {
      rows_[kind] = kAlias;
      rows_.push_back(AddressOf(value));
      return true;
    }
    if (!Is(value, schema_.call)) return false;
    const ffi::Object* op = schema_.op(value);
    const ffi::ArrayObj& args = ItemsOf(schema_.args(value));
    if (op == allocates_) {
      rows_[kind] = kAllocation;
      return AddAllocation(value, args);
    }
    rows_[kind] = kKernel;
    return Is(op, schema_.global_var) && AddKernel(op, args);
  }

  // Addresses of variables; ~number of what else is passed.
  bool AddKernel(const ffi::Object* callee, const ffi::ArrayObj& args) {
    rows_.insert(rows_.end(), {callees_.Of(callee), static_cast<int64_t>(args.size())});
    for (const ffi::Any& arg : args) {
      const ffi::Object* node = ObjectIn(arg);
      if (schema_.IsVar(node)) {
        rows_.push_back(Is(schema_.type(node), schema_.prim) ? ~literals_.Of(node) : AddressOf(node));
      } else if (Is(node, schema_.constant) || Is(node, schema_.integer)) {
        rows_.push_back(~literals_.Of(node));
      } else {
        return false;
      }
    }
    return true;
  }

  // Shape, dtype, device and scope.
  bool AddAllocation(const ffi::Object* call, const ffi::ArrayObj& args) {
    if (args.size() != 4) return false;
    const ffi::Object *shape = ObjectIn(args.at(0)), *dtype = ObjectIn(args.at(1)), *device = ObjectIn(args.at(2)),
                      *scope = ObjectIn(args.at(3));
    if (!Is(shape, schema_.shape) || !Is(dtype, schema_.constant) || !Is(device, schema_.integer) ||
        !Is(scope, schema_.text)) {
      return false;
    }
    const std::optional<DLDataType> element = schema_.content(dtype).as<DLDataType>();
    if (!element) return false;
    const auto where = schema_.letters(scope).cast<ffi::String>();
    key_.assign({NumberOf(*element), schema_.number(device).cast<int64_t>(), static_cast<int64_t>(where.size())});
    key_.insert(key_.end(), where.data(), where.data() + where.size());
    AddExtents(shape);
    rows_.push_back(allocations_.Of(key_, call));
    return true;
  }

  int64_t TypeOf(const ffi::Object* type) {
    if (Is(type, schema_.tuple)) {
      return ItemsOf(schema_.fields(type)).empty() ? types_.Of({schema_.tuple}, type) : types_.Of(type);
    }
    if (!Is(type, schema_.tensor)) return types_.Of(type);
    const ffi::Object *shape = schema_.tensor_shape(type), *element = schema_.tensor_dtype(type);
    if (element != nullptr && !Is(element, schema_.prim)) return types_.Of(type);
    key_.assign({schema_.tensor, element == nullptr ? -1 : NumberOf(schema_.prim_dtype(element).cast<DLDataType>()),
                 AddressOf(schema_.tensor_device(type)), schema_.tensor_ndim(type).cast<int64_t>()});
    if (Is(shape, schema_.shape)) {
      AddExtents(shape);
    } else {
      key_.push_back(AddressOf(shape));
    }
    return types_.Of(key_, type);
  }

  // Integers by value, whatever else by its address.
  void AddExtents(const ffi::Object* shape) {
    const ffi::ArrayObj& extents = ItemsOf(schema_.extents(shape));
    key_.push_back(static_cast<int64_t>(extents.size()));
    for (const ffi::Any& extent : extents) {
      const ffi::Object* node = ObjectIn(extent);
      const bool integer = Is(node, schema_.integer);
      key_.insert(key_.end(), {integer, integer ? schema_.number(node).cast<int64_t>() : AddressOf(node)});
    }
  }

  static int64_t NumberOf(DLDataType dtype) {
    return int64_t{dtype.code} | int64_t{dtype.bits} << 8 | int64_t{dtype.lanes} << 16;
  }

  const Schema schema_;
  const ffi::Object* allocates_;
  Row rows_, key_;
  std::string names_;
  Kinds types_, allocations_, callees_, literals_;
};

ffi::Array<ffi::Any> ReadBindings(ffi::Array<ffi::Any> bindings, ffi::ObjectRef allocates) {
  const auto read = [&] {
    Reader reader(allocates.get());
    reader.ReadAll(bindings);
    return reader.Answer();
  };
  return Translated(read, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef().def("symalloc.module.read_bindings", ReadBindings);
}

}  // namespace symalloc::module
