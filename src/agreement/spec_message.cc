#include "agreement/spec_message.h"

#include <utility>

#include "base/message.h"
#include "base/try.h"
#include "tensor/tensor_table.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kSpecBytesMin = 8 + 1 + 8 + 8 + 1;  // two texts, a dtype, a shape, a flag

void add_shape(MessageWriter& message, const Shape& shape) {
  message.number(static_cast<std::uint64_t>(shape.size()));
  for (const std::uint64_t size : shape) message.number(size);
}

Shape read_shape(MessageReader& message) {
  Shape shape(message.count(sizeof(std::uint64_t)));
  for (std::uint64_t& size : shape) size = message.number<std::uint64_t>();
  return shape;
}

void add_spec(MessageWriter& message, const TensorSpec& spec) {
  message.text(spec.key).number(std::to_underlying(spec.dtype)).text(spec.logical_dtype);
  add_shape(message, spec.shape);
  message.flag(spec.box.has_value());
  if (!spec.box) return;
  add_shape(message, spec.box->offset);
  add_shape(message, spec.box->extent);
  add_shape(message, spec.global_shape);
}

TensorSpec read_spec(MessageReader& message) {
  TensorSpec spec;
  spec.key = message.text();
  spec.dtype = DType{message.number<std::uint8_t>()};
  spec.logical_dtype = message.text();
  spec.shape = read_shape(message);
  if (!message.flag()) return spec;
  spec.box = Box{};
  spec.box->offset = read_shape(message);
  spec.box->extent = read_shape(message);
  spec.global_shape = read_shape(message);
  return spec;
}

Status check(const TensorSpec& spec) {
  if (spec.dtype > DType::kF64) {
    return fail(ErrorCode::kInternal, "tensor " + spec.key + ": another rank's dtype is unknown");
  }
  return check_spec(spec);
}

}  // namespace

std::string encode_specs(const std::vector<TensorSpec>& specs) {
  MessageWriter message;
  message.number(static_cast<std::uint64_t>(specs.size()));
  for (const TensorSpec& spec : specs) add_spec(message, spec);
  return message.take();
}

Result<std::vector<TensorSpec>> decode_specs(std::string_view bytes) {
  MessageReader message(bytes);
  std::vector<TensorSpec> specs(message.count(kSpecBytesMin));
  for (TensorSpec& spec : specs) spec = read_spec(message);
  DF_TRY_VOID(message.end());
  for (const TensorSpec& spec : specs) DF_TRY_VOID(check(spec));
  return specs;
}

}  // namespace deepfreeze
