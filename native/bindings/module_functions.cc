// Reading and writing Relax modules: symalloc/native/native_functions.pyi has the types of these functions.
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
using Row = std::vector<int64_t>;

constexpr char kWhat[] = "reading or writing a module";  // that memory is for

int64_t AddressOf(const ffi::Object* object) { return reinterpret_cast<int64_t>(object); }

const ffi::Object* ObjectIn(const ffi::Any& value) { return value.as<ffi::Object>(); }

int32_t IndexOf(std::string_view key) {
  const TVMFFIByteArray name{key.data(), key.size()};
  int32_t index = 0;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&name, &index));
  return index;
}

// The classes and fields of TVM's that a binding consists of.
struct Schema {
  const int32_t binding = IndexOf("relax.expr.VarBinding"), var = IndexOf("ir.Var"),
                dataflow_var = IndexOf("relax.expr.DataflowVar"), call = IndexOf("ir.Call"),
                global_var = IndexOf("ir.GlobalVar"), shape = IndexOf("relax.expr.ShapeExpr"),
                constant = IndexOf("ir.GenericConst"), text = IndexOf("ir.StringImm"), integer = IndexOf("ir.IntImm"),
                tensor = IndexOf("relax.TensorType"), prim = IndexOf("ir.PrimType"), tuple = IndexOf("ir.TupleType");
  const Field bound{"relax.expr.Binding", "var"}, value{"relax.expr.VarBinding", "value"}, type{"ir.Expr", "ty"},
      name{"ir.Var", "name"}, op{"ir.Call", "op"}, args{"ir.Call", "args"}, extents{"relax.expr.ShapeExpr", "values"},
      content{"ir.GenericConst", "value"}, letters{"ir.StringImm", "value"}, number{"ir.IntImm", "value"},
      tensor_shape{"relax.TensorType", "shape"}, tensor_dtype{"relax.TensorType", "dtype"},
      tensor_device{"relax.TensorType", "vdevice"}, tensor_ndim{"relax.TensorType", "ndim"},
      prim_dtype{"ir.PrimType", "dtype"}, fields{"ir.TupleType", "fields"}, span{"ir.Expr", "span"};

  bool IsVar(const ffi::Object* node) const {
    return node != nullptr && (node->type_index() == var || node->type_index() == dataflow_var);
  }
};

bool Is(const ffi::Object* node, int32_t index) { return node != nullptr && node->type_index() == index; }

// Numbers things that are alike, the first of each kept.
class Kinds {
 public:
  int64_t Of(const Row& key, const ffi::Object* one) {
    const std::string text(reinterpret_cast<const char*>(key.data()), key.size() * sizeof(int64_t));
    const auto [place, fresh] = numbers_.try_emplace(text, static_cast<int64_t>(kept_.size()));
    if (fresh) kept_.push_back(ffi::ObjectRef(Unsafe::ObjectPtrFromUnowned<ffi::Object>(const_cast<ffi::Object*>(one))));
    return place->second;
  }

  int64_t Of(const ffi::Object* one) { return Of({AddressOf(one)}, one); }

  const ffi::Array<ffi::Any>& kept() const { return kept_; }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
  ffi::Array<ffi::Any> kept_;
};

// What a row says first.
enum Kind : int64_t { kOther, kAlias, kKernel, kAllocation };

class Reader {
 public:
  explicit Reader(const ffi::Object* allocates) : allocates_(allocates) {}

  void Read(const ffi::Any& binding) {
    const ffi::Object* node = ObjectIn(binding);
    if (!Is(node, schema_.binding) || !Known(node)) rows_.push_back(kOther);
  }

  ffi::Array<ffi::Any> Answer() const {
    return {packer::BytesOf(rows_), ffi::String(names_), types_.kept(), allocations_.kept(), callees_.kept(),
            literals_.kept()};
  }

 private:
  // Writes the row of a binding of one of the plain kinds.
  bool Known(const ffi::Object* binding) {
    const ffi::Any bound = schema_.bound(binding), value = schema_.value(binding);
    const ffi::Object* var = ObjectIn(bound);
    const ffi::Any type = schema_.type(var);
    if (ObjectIn(type) == nullptr || Is(ObjectIn(type), schema_.prim)) return false;
    const std::optional<Row> row = RowOf(ObjectIn(value));
    if (!row) return false;
    const std::string name = schema_.name(var).cast<ffi::String>();
    if (name.find('\n') != std::string::npos) return false;
    names_ += name + '\n';
    rows_.push_back(row->front());
    rows_.push_back(AddressOf(var));
    rows_.push_back(TypeOf(ObjectIn(type)));
    rows_.insert(rows_.end(), row->begin() + 1, row->end());
    return true;
  }

  std::optional<Row> RowOf(const ffi::Object* value) {
    if (schema_.IsVar(value)) return Row{kAlias, AddressOf(value)};
    if (!Is(value, schema_.call)) return std::nullopt;
    const ffi::Any op = schema_.op(value);
    const auto args = schema_.args(value).cast<ffi::Array<ffi::Any>>();
    if (ObjectIn(op) == allocates_) return AllocationOf(value, args);
    return Is(ObjectIn(op), schema_.global_var) ? KernelOf(ObjectIn(op), args) : std::nullopt;
  }

  // Addresses of variables; ~number of what else is passed.
  std::optional<Row> KernelOf(const ffi::Object* callee, const ffi::Array<ffi::Any>& args) {
    Row row{kKernel, callees_.Of(callee), static_cast<int64_t>(args.size())};
    for (const ffi::Any& arg : args) {
      const ffi::Object* node = ObjectIn(arg);
      if (schema_.IsVar(node)) {
        row.push_back(Is(ObjectIn(schema_.type(node)), schema_.prim) ? ~literals_.Of(node) : AddressOf(node));
      } else if (Is(node, schema_.constant) || Is(node, schema_.integer)) {
        row.push_back(~literals_.Of(node));
      } else {
        return std::nullopt;
      }
    }
    return row;
  }

  // Shape, dtype, device and scope.
  std::optional<Row> AllocationOf(const ffi::Object* call, const ffi::Array<ffi::Any>& args) {
    if (args.size() != 4) return std::nullopt;
    const ffi::Object *shape = ObjectIn(args[0]), *dtype = ObjectIn(args[1]), *device = ObjectIn(args[2]),
                      *scope = ObjectIn(args[3]);
    if (!Is(shape, schema_.shape) || !Is(dtype, schema_.constant) || !Is(device, schema_.integer) ||
        !Is(scope, schema_.text)) {
      return std::nullopt;
    }
    const std::optional<DLDataType> element = schema_.content(dtype).as<DLDataType>();
    if (!element) return std::nullopt;
    Row key{NumberOf(*element), schema_.number(device).cast<int64_t>()};
    const std::string where = schema_.letters(scope).cast<ffi::String>();
    key.push_back(static_cast<int64_t>(where.size()));
    key.insert(key.end(), where.begin(), where.end());
    AddExtents(shape, &key);
    return Row{kAllocation, allocations_.Of(key, call)};
  }

  int64_t TypeOf(const ffi::Object* type) {
    if (Is(type, schema_.tuple)) {
      const auto fields = schema_.fields(type).cast<ffi::Array<ffi::Any>>();
      return fields.empty() ? types_.Of({schema_.tuple}, type) : types_.Of(type);
    }
    if (!Is(type, schema_.tensor)) return types_.Of(type);
    const ffi::Any dtype = schema_.tensor_dtype(type), device = schema_.tensor_device(type),
                   shape = schema_.tensor_shape(type);
    const ffi::Object* element = ObjectIn(dtype);
    if (element != nullptr && !Is(element, schema_.prim)) return types_.Of(type);
    Row key{schema_.tensor, element == nullptr ? -1 : NumberOf(schema_.prim_dtype(element).cast<DLDataType>()),
            AddressOf(ObjectIn(device)), schema_.tensor_ndim(type).cast<int64_t>()};
    if (Is(ObjectIn(shape), schema_.shape)) {
      AddExtents(ObjectIn(shape), &key);
    } else {
      key.push_back(AddressOf(ObjectIn(shape)));
    }
    return types_.Of(key, type);
  }

  // Integers by value, whatever else by its address.
  void AddExtents(const ffi::Object* shape, Row* key) {
    const auto extents = schema_.extents(shape).cast<ffi::Array<ffi::Any>>();
    key->push_back(static_cast<int64_t>(extents.size()));
    for (const ffi::Any& extent : extents) {
      const ffi::Object* node = ObjectIn(extent);
      const bool integer = Is(node, schema_.integer);
      key->push_back(integer);
      key->push_back(integer ? schema_.number(node).cast<int64_t>() : AddressOf(node));
    }
  }

  static int64_t NumberOf(DLDataType dtype) {
    return int64_t{dtype.code} | int64_t{dtype.bits} << 8 | int64_t{dtype.lanes} << 16;
  }

  const Schema schema_;
  const ffi::Object* allocates_;
  Row rows_;
  std::string names_;
  Kinds types_, allocations_, callees_, literals_;
};

ffi::Array<ffi::Any> ReadBindings(ffi::Array<ffi::Any> bindings, ffi::ObjectRef allocates) {
  const auto read = [&] {
    Reader reader(allocates.get());
    for (const ffi::Any& binding : bindings) reader.Read(binding);
    return reader.Answer();
  };
  return Translated(read, kWhat);
}

ffi::Bytes Addresses(ffi::Array<ffi::Any> items) {
  const auto read = [&] {
    Row addresses;
    for (const ffi::Any& item : items) addresses.push_back(AddressOf(ObjectIn(item)));
    return packer::BytesOf(addresses);
  };
  return Translated(read, kWhat);
}

// What a step does; two numbers or three stand behind it.
enum Step : int64_t { kCopied, kFresh, kPlaced };

class Writer {
 public:
  Writer(ffi::Array<ffi::Any> old, ffi::Array<ffi::Any> fresh, ffi::Array<ffi::Any> storages,
         ffi::Array<ffi::Any> offsets, ffi::ObjectRef allocates, ffi::ObjectRef places)
      : old_(std::move(old)), fresh_(std::move(fresh)), storages_(std::move(storages)), offsets_(std::move(offsets)),
        allocates_(std::move(allocates)), places_(std::move(places)) {}

  ffi::Array<ffi::Any> Write(const Row& steps) const {
    ffi::Array<ffi::Any> written;
    for (size_t at = 0; at < steps.size(); at += 4) {
      const int64_t *numbers = &steps[at + 1];
      if (steps[at] == kPlaced) {
        written.push_back(Placed(old_[numbers[0]], storages_[numbers[1]], offsets_[numbers[2]]));
        continue;
      }
      const ffi::Array<ffi::Any>& source = steps[at] == kCopied ? old_ : fresh_;
      for (int64_t index = numbers[0]; index < numbers[1]; ++index) written.push_back(source[index]);
    }
    return written;
  }

 private:
  // The binding of an allocation as one of a tensor at `offset` in `storage`.
  ffi::Any Placed(const ffi::Any& binding, const ffi::Any& storage, const ffi::Any& offset) const {
    const ffi::Object* node = ObjectIn(binding);
    const ffi::Any value = Is(node, schema_.binding) ? schema_.value(node) : ffi::Any();
    const ffi::Object* call = ObjectIn(value);
    if (!Is(call, schema_.call) || ObjectIn(schema_.op(call)) != allocates_.get()) {
      throw ffi::Error("ValueError", "a tensor is placed that nothing allocates", "");
    }
    const auto args = schema_.args(call).cast<ffi::Array<ffi::Any>>();
    const ffi::Array<ffi::Any> given{storage, offset, args[0], args[1], args[2]};
    const ffi::Any placed = call_(schema_.type(call), places_, given, nullptr, ffi::Array<ffi::Any>(), schema_.span(call));
    return binding_(schema_.bound(node), placed, nullptr);
  }

  const Schema schema_;
  const ffi::Function call_ = ffi::Function::GetGlobalRequired("ir.Call"),
                      binding_ = ffi::Function::GetGlobalRequired("relax.VarBinding");
  const ffi::Array<ffi::Any> old_, fresh_, storages_, offsets_;
  const ffi::ObjectRef allocates_, places_;
};

ffi::Array<ffi::Any> WriteBindings(ffi::Array<ffi::Any> old, ffi::Array<ffi::Any> fresh, ffi::Array<ffi::Any> storages,
                                   ffi::Array<ffi::Any> offsets, ffi::Bytes steps, ffi::ObjectRef allocates,
                                   ffi::ObjectRef places) {
  const auto write = [&] {
    return Writer(old, fresh, storages, offsets, allocates, places).Write(packer::Numbers<int64_t>(steps));
  };
  return Translated(write, kWhat);
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.module.read_bindings", ReadBindings)
      .def("symalloc.module.addresses", Addresses)
      .def("symalloc.module.write_bindings", WriteBindings);
}

}  // namespace symalloc::module
