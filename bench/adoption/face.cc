// AdoptedState for bench/adoption/library.py, which calls it through ctypes and so without the GIL.
//
// A call that can fail returns false or null and leaves a message. open and save, which take
// memory, let no exception out; the others lock and wait.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "adopted_state.h"
#include "base/try.h"

namespace deepfreeze {

// As library.py lays them out.
namespace face {

// Where a message goes, cut to its room.
struct Message {
  char* text;
  std::uint64_t room;
};

// One tensor, as Python describes it.
struct Form {
  const char* key;
  const char* dtype;
  const char* logical_dtype;
  const std::uint64_t* shape;
  std::uint64_t rank;
};

struct OpenRequest {
  const char* directory;
  const Form* forms;
  std::uint64_t form_count;
  std::uint32_t checksum_time;  // as ChecksumTime counts
  std::uint32_t has_fences;
};

struct Outcome {
  std::uint32_t is_committed;
  double durable_seconds;
};

}  // namespace face

namespace {

void leave(const face::Message& message, std::string_view text) {
  if (message.room == 0) return;
  const std::size_t count = std::min<std::size_t>(text.size(), message.room - 1);
  std::memcpy(message.text, text.data(), count);
  message.text[count] = '\0';
}

Result<TensorSpec> spec_of(const face::Form& form) {
  const auto dtype = dtype_from_name(form.dtype);
  if (!dtype) return fail(ErrorCode::kInvalidArgument, std::string("no dtype: ") + form.dtype);
  return TensorSpec{.key = form.key,
                    .dtype = *dtype,
                    .shape = Shape(form.shape, form.shape + form.rank),
                    .logical_dtype = form.logical_dtype};
}

Result<std::unique_ptr<AdoptedState>> open(const face::OpenRequest& request) {
  AdoptionOptions options{.directory = request.directory};
  for (std::uint64_t i = 0; i < request.form_count; ++i) {
    DF_TRY(TensorSpec spec, spec_of(request.forms[i]));
    options.specs.push_back(std::move(spec));
  }
  if (request.checksum_time > static_cast<std::uint32_t>(ChecksumTime::kNever)) {
    return fail(ErrorCode::kInvalidArgument, "no such time for checksums");
  }
  options.checksum_time = static_cast<ChecksumTime>(request.checksum_time);
  options.fences = request.has_fences != 0 ? Fences::kOn : Fences::kOff;
  return AdoptedState::open(std::move(options));
}

}  // namespace

extern "C" {

// Owned by the caller until adoption_free().
AdoptedState* adoption_open(const face::OpenRequest* request, face::Message message) {
  try {
    auto opened = open(*request);
    if (opened) return opened->release();
    leave(message, opened.error().message());
  } catch (const std::exception& cause) {
    leave(message, cause.what());
  }
  return nullptr;
}

const void* adoption_place(const AdoptedState* state, std::uint64_t tensor) {
  return tensor < state->tensor_count() ? state->place(tensor).data() : nullptr;
}

const void* adoption_memory(const AdoptedState* state) { return state->memory().data(); }

std::uint64_t adoption_memory_bytes(const AdoptedState* state) { return state->memory().size(); }

// `sources`: one for each tensor, null for those that live in their place.
bool adoption_save(AdoptedState* state, std::uint64_t step, const char* objects,
                   const std::byte* const* sources, face::Message message) {
  try {
    const Status saved = state->save(
        {.step = step, .objects = objects, .sources = {sources, state->tensor_count()}});
    if (saved) return true;
    leave(message, saved.error().message());
  } catch (const std::exception& cause) {
    leave(message, cause.what());
  }
  return false;
}

double adoption_fence(AdoptedState* state) { return state->fence(); }

void adoption_wait(AdoptedState* state) { state->wait(); }

// False where no save of this step has settled.
bool adoption_outcome(AdoptedState* state, std::uint64_t step, face::Outcome* into,
                      face::Message message) {
  const auto outcome = state->outcome(step);
  if (!outcome) return false;
  *into = {.is_committed = outcome->is_committed ? 1U : 0U,
           .durable_seconds = outcome->durable_seconds};
  leave(message, outcome->error);
  return true;
}

void adoption_close(AdoptedState* state) { state->close(); }

// And the memory: no tensor may be left in it.
void adoption_free(AdoptedState* state) { const std::unique_ptr<AdoptedState> owned(state); }

}  // extern "C"
}  // namespace deepfreeze
