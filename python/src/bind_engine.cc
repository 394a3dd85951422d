// Writing: the engine and the handles of its saves.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <filesystem>
#include <string>
#include <tuple>

#include "best_forms.h"
#include "deepfreeze/checkpointer.h"
#include "divergence.h"
#include "errors.h"
#include "python_keys.h"
#include "python_ranks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace deepfreeze::python {
namespace {

Error invalid(const std::string& message) { return {ErrorCode::kInvalidArgument, message}; }

Level level_of(const std::string& name) {
  if (name == "captured") return Level::kCaptured;
  if (name == "local") return Level::kLocal;
  if (name == "durable") return Level::kDurable;
  if (name == "protected") return Level::kProtected;
  raise(invalid("level \"" + name + "\": not captured, local, durable or protected"));
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kSecondsMax = 1e9;  // more would overflow a wait's argument
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(std::max(seconds, 0.0), kSecondsMax) * 1000.0));
}

OnBusy on_busy_of(const std::string& name) {
  if (name == "block") return OnBusy::kBlock;
  if (name == "skip") return OnBusy::kSkip;
  raise(invalid("on_busy \"" + name + "\": not block or skip"));
}

Profile profile_of(const std::string& name) {
  if (name == "auto") return Profile::kAuto;
  if (name == "latency") return Profile::kLatency;
  if (name == "throughput") return Profile::kThroughput;
  raise(invalid("profile \"" + name + "\": not auto, latency or throughput"));
}

std::optional<std::chrono::milliseconds> timeout_of(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return milliseconds_of(*seconds);
}

// The box's offset, and the shape of the whole tensor.
using BoxForm = std::pair<std::vector<std::uint64_t>, std::vector<std::uint64_t>>;

// Key, dtype, shape, logical dtype, bytes, and the box if the tensor is part of a whole.
using Form = std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::string,
                        std::size_t, std::optional<BoxForm>>;

Tensor unplaced_tensor(Form form) {
  auto& [key, dtype, shape, logical_dtype, bytes, box] = form;
  const auto known = dtype_from_name(dtype);
  if (!known) raise(invalid("tensor " + key + ": dtype \"" + dtype + "\" can't be stored"));
  TensorSpec spec{.key = std::move(key),
                  .dtype = *known,
                  .shape = std::move(shape),
                  .logical_dtype = std::move(logical_dtype),
                  .box = {},
                  .global_shape = {}};
  if (box) {
    spec.box = Box{std::move(box->first), spec.shape};
    spec.global_shape = std::move(box->second);
  }
  return {.spec = std::move(spec), .data = {static_cast<const std::byte*>(nullptr), bytes}};
}

// The tensors to save, kept from one save to the next: usually only places and guards change.
class Table {
 public:
  // A tensor's number, address, guard and device.
  using PlaceForm = std::tuple<std::size_t, std::uintptr_t, std::uint32_t, std::int32_t>;

  explicit Table(std::vector<Form> forms) {
    tensors.reserve(forms.size());
    for (Form& form : forms) tensors.push_back(unplaced_tensor(std::move(form)));
  }

  void place(const std::vector<PlaceForm>& places) {
    for (const auto& [index, address, guard, device] : places) {
      if (index >= tensors.size()) raise(invalid("a table has no tensor of that number"));
      Tensor& tensor = tensors[index];
      tensor.data = {reinterpret_cast<const std::byte*>(address), tensor.data.size()};
      tensor.guard = guard;
      tensor.device = device;
    }
  }

  TensorTable tensors;
};

// Device and stream.
using StreamForm = std::pair<std::int32_t, std::uintptr_t>;

std::vector<DeviceStream> streams_of(const std::vector<StreamForm>& forms) {
  std::vector<DeviceStream> streams;
  streams.reserve(forms.size());
  for (const auto& [device, stream] : forms) {
    streams.push_back({.device = device, .stream = stream});
  }
  return streams;
}

// The status for an exception that Python raised, from its code; "" is no error.
Status status_of(const std::string& code, const std::string& message) {
  if (code.empty()) return {};
  for (auto known = ErrorCode::kInvalidArgument; known <= ErrorCode::kInternal;
       known = ErrorCode{static_cast<std::uint8_t>(static_cast<std::uint8_t>(known) + 1)}) {
    if (to_string(known) == code) return std::unexpected(Error(known, message));
  }
  return std::unexpected(Error(ErrorCode::kInternal, message));
}

// Path, every, the rules of keep (last, every, best), bytes per second, endpoint, region, source of
// keys.
using TierForm = std::tuple<std::string, std::optional<std::uint64_t>, std::optional<std::size_t>,
                            std::optional<std::uint64_t>, std::optional<BestForm>, std::uint64_t,
                            bool, std::string, std::string, nb::object>;

Tier tier_of(const TierForm& form) {
  const auto& [path, every, keep_last, keep_every, keep_best, rate, compresses, endpoint, region,
               keys] = form;
  Tier tier{.path = path,
            .every = every,
            .keep = {},
            .bytes_per_second = rate,
            .compress = compresses ? Compress::kAuto : Compress::kNone,
            .endpoint = endpoint,
            .region = region,
            .keys = make_keys(keys)};
  tier.keep.last = keep_last;
  tier.keep.every = keep_every;
  if (keep_best) tier.keep.best = best_of_form(*keep_best);
  return tier;
}

// Data, parity, bytes per second, domain.
using ParityForm = std::tuple<std::size_t, std::size_t, std::uint64_t, std::string>;

Parity parity_of(ParityForm form) {
  auto& [data, parity, rate, domain] = form;
  return {.data = data, .parity = parity, .bytes_per_second = rate, .domain = std::move(domain)};
}

// The interface of the links, and parity, of nodes with directories of their own.
using NodesForm = std::pair<std::string, std::optional<ParityForm>>;

// Directory and command.
using AgentForm = std::pair<std::string, std::vector<std::string>>;

Checkpointer open_engine(const std::filesystem::path& path, std::optional<std::size_t> keep_last,
                         std::optional<std::uint64_t> keep_every,
                         const std::optional<BestForm>& keep_best,
                         std::optional<std::pair<std::string, std::uint64_t>> parent,
                         const std::string& on_busy, double busy_wait_max_seconds,
                         const std::string& profile, std::optional<std::size_t> arena_bytes_max,
                         bool statistics, bool reuse_unchanged, std::uint64_t reuse_bytes_min,
                         nb::object ranks, double commit_wait_max_seconds,
                         std::uint32_t audit_saves, bool read_only,
                         const std::vector<TierForm>& tiers, std::optional<std::uint64_t> bytes_max,
                         double drain_wait_max_seconds, std::optional<AgentForm> agent,
                         std::optional<NodesForm> nodes) {
  Options options;
  if (nodes) {
    options.near = Near::kNode;
    options.link = std::move(nodes->first);
    if (nodes->second) options.protect = parity_of(*std::move(nodes->second));
  }
  if (agent) {
    options.agent =
        Agent{.directory = std::move(agent->first), .command = std::move(agent->second)};
  }
  for (const TierForm& form : tiers) options.tiers.push_back(tier_of(form));
  options.bytes_max = bytes_max;
  options.drain_wait_max = milliseconds_of(drain_wait_max_seconds);
  options.read_only = read_only;
  options.audit_saves = audit_saves;
  options.ranks = make_ranks(std::move(ranks));
  options.commit_wait_max = milliseconds_of(commit_wait_max_seconds);
  options.keep.last = keep_last;
  options.keep.every = keep_every;
  if (keep_best) options.keep.best = best_of_form(*keep_best);
  if (parent) options.parent = ParentPoint{parent->first, parent->second};
  options.on_busy = on_busy_of(on_busy);
  options.busy_wait_max = milliseconds_of(busy_wait_max_seconds);
  options.profile = profile_of(profile);
  options.arena_bytes_max = arena_bytes_max;
  options.statistics = statistics;
  options.reuse_unchanged = reuse_unchanged;
  options.reuse_bytes_min = reuse_bytes_min;
  return without_gil([&] { return Checkpointer::open(path, std::move(options)); });
}

// Swaps the tensors back, whatever happens.
class Lent {
 public:
  Lent(TensorTable& owner, TensorTable& borrower) : owner_(owner), borrower_(borrower) {}
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() { owner_.swap(borrower_); }

 private:
  TensorTable& owner_;
  TensorTable& borrower_;
};

// Lends the table's tensors to the request, which would otherwise copy them. Like the engine, the
// table is for one thread at a time.
template <class Call>
auto with_tensors(Table& table, SaveRequest request, Call call) {
  request.tensors.swap(table.tensors);
  const Lent lent(table.tensors, request.tensors);
  return without_gil([&] { return call(request); });
}

std::optional<SaveHandle> lend_and_save(Checkpointer& engine, std::uint64_t step, Table& table,
                                        std::string objects, std::map<std::string, double> metrics,
                                        std::map<std::string, std::string> tags,
                                        std::map<std::string, std::string> environment,
                                        bool confirm, const std::vector<StreamForm>& streams) {
  return with_tensors(table,
                      {.step = step,
                       .objects = std::move(objects),
                       .metrics = std::move(metrics),
                       .tags = std::move(tags),
                       .environment = std::move(environment),
                       .confirm = confirm,
                       .streams = streams_of(streams)},
                      [&](const SaveRequest& request) { return engine.save(request); });
}

void prewarm(Checkpointer& engine, Table& table, std::string objects,
             const std::vector<StreamForm>& streams) {
  with_tensors(table, {.objects = std::move(objects), .streams = streams_of(streams)},
               [&](const SaveRequest& request) { return engine.prewarm(request); });
}

void wait_handle(const SaveHandle& handle, const std::string& level,
                 std::optional<double> timeout_seconds) {
  const Level wanted = level_of(level);
  without_gil([&] { return handle.wait(wanted, timeout_of(timeout_seconds)); });
}

nb::object exception_of(const std::optional<Error>& error) {
  return error ? make_exception(*error) : nb::none();
}

std::string_view name_of(TierProgress::State state) {
  switch (state) {
    case TierProgress::State::kNotMeant:
      return "not meant";
    case TierProgress::State::kWaiting:
      return "waiting";
    case TierProgress::State::kCommitted:
      return "committed";
    case TierProgress::State::kLeftOut:
      return "left out";
  }
  return "";
}

// Path and state.
std::vector<std::pair<std::string, std::string>> tiers_of(const SaveStatus& status) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const TierProgress& tier : status.tiers) pairs.emplace_back(tier.path, name_of(tier.state));
  return pairs;
}

void bind_restoring(nb::class_<Checkpointer>& engine) {
  engine
      .def("candidates",
           [](Checkpointer& self) { return without_gil([&self] { return self.candidates(); }); })
      .def(
          "open_checkpoint",
          [](Checkpointer& self, const CheckpointInfo& info) {
            return without_gil([&] { return self.open_checkpoint(info); });
          },
          "info"_a)
      .def("continue_from", [](Checkpointer& self, const CheckpointInfo& info) {
        unwrap(self.continue_from(info));
      });
}

void bind_tiers(nb::module_& module, nb::class_<Checkpointer>& engine) {
  nb::class_<TierStatus>(module, "TierStatus")
      .def_ro("path", &TierStatus::path)
      .def_ro("waiting", &TierStatus::waiting)
      .def_ro("step", &TierStatus::step)
      .def_ro("bytes_sent", &TierStatus::bytes_sent)
      .def_ro("bytes_total", &TierStatus::bytes_total)
      .def_ro("stored_total", &TierStatus::stored_total)
      .def_ro("committed", &TierStatus::committed)
      .def_ro("left_out", &TierStatus::left_out)
      .def_ro("saves_refused", &TierStatus::saves_refused)
      .def_ro("failures", &TierStatus::failures)
      .def_prop_ro("error", [](const TierStatus& tier) { return exception_of(tier.error); });
  engine.def("tiers", &Checkpointer::tiers)
      .def(
          "drain",
          [](Checkpointer& self, double timeout_seconds) {
            without_gil([&] { return self.drain(milliseconds_of(timeout_seconds)); });
          },
          "timeout_seconds"_a)
      .def(
          "heal",
          [](Checkpointer& self, const CheckpointInfo& info, const OpenCheckpoint& restored) {
            without_gil([&]() -> Status {
              self.heal(info, restored.mended());
              return {};
            });
          },
          "info"_a, "restored"_a);
}

void bind_handle(nb::module_& module) {
  nb::class_<SaveStatus>(module, "SaveStatus")
      .def_ro("step", &SaveStatus::step)
      .def_ro("bytes", &SaveStatus::bytes)
      .def_ro("bytes_copied", &SaveStatus::bytes_copied)
      .def_ro("bytes_written", &SaveStatus::bytes_written)
      .def_ro("bytes_shared", &SaveStatus::bytes_shared)
      .def_ro("guarded_bytes", &SaveStatus::guarded_bytes)
      .def_ro("stall_seconds", &SaveStatus::stall_seconds)
      .def_ro("fence_seconds", &SaveStatus::fence_seconds)
      .def_ro("copy_seconds", &SaveStatus::copy_seconds)
      .def_ro("checksum_seconds", &SaveStatus::checksum_seconds)
      .def_ro("write_seconds", &SaveStatus::write_seconds)
      .def_ro("commit_seconds", &SaveStatus::commit_seconds)
      .def_ro("local_seconds", &SaveStatus::local_seconds)
      .def_ro("durable_seconds", &SaveStatus::durable_seconds)
      .def_ro("protected_seconds", &SaveStatus::protected_seconds)
      .def_ro("early", &SaveStatus::early)
      .def_ro("captured", &SaveStatus::captured)
      .def_ro("local", &SaveStatus::local)
      .def_ro("durable", &SaveStatus::durable)
      .def_ro("protected", &SaveStatus::is_protected)
      .def_ro("non_finite", &SaveStatus::non_finite)
      .def_prop_ro("diverged", [](const SaveStatus& status) { return pairs_of(status.diverged); })
      .def_ro("torn", &SaveStatus::torn)
      .def_prop_ro("tiers", &tiers_of)
      .def_prop_ro("error", [](const SaveStatus& status) { return exception_of(status.error); });
  nb::class_<SaveHandle>(module, "SaveHandle")
      .def("wait", &wait_handle, "level"_a, "timeout_seconds"_a.none())
      .def(
          "wait_copied",
          [](const SaveHandle& handle, std::optional<double> timeout_seconds) {
            without_gil([&] { return handle.wait_copied(timeout_of(timeout_seconds)); });
          },
          "timeout_seconds"_a.none())
      .def("confirm", &SaveHandle::confirm, "torn"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("status", &SaveHandle::status);
}

void bind_agreement(nb::class_<Checkpointer>& engine) {
  engine
      .def(
          "decline",
          [](Checkpointer& self, const std::string& code, const std::string& message) {
            const Status own = status_of(code, message);
            without_gil([&]() -> Status {
              if (!own) self.decline(own.error());
              return {};
            });
          },
          "code"_a, "message"_a)
      .def(
          "as_rank0",
          [](Checkpointer& self, bool own) {
            return without_gil([&] { return self.as_rank0(own); });
          },
          "own"_a)
      .def(
          "agree",
          [](Checkpointer& self, const std::string& subject, const std::string& code,
             const std::string& message) {
            const Status own = status_of(code, message);
            without_gil([&] { return self.agree(subject, own); });
          },
          "subject"_a, "code"_a = "", "message"_a = "");
}

// The calls beside a save: memory that is taken for it, fences, early capture.
void bind_capture(nb::class_<Checkpointer>& engine) {
  const std::vector<StreamForm> no_streams;
  engine
      .def(
          "expect",
          [](Checkpointer& self, std::uint64_t bytes, const std::vector<std::int32_t>& devices) {
            self.expect(bytes, devices);
          },
          "bytes"_a, "devices"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "fence",
          [](Checkpointer& self, std::uint32_t guard, const std::vector<StreamForm>& streams) {
            self.fence(guard, streams_of(streams));
          },
          "guard"_a, "streams"_a = no_streams, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "fence_all",
          [](Checkpointer& self, const std::vector<StreamForm>& streams) {
            self.fence(streams_of(streams));
          },
          "streams"_a = no_streams, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "begin_capture",
          [](Checkpointer& self, const Table& table) {
            return without_gil([&] { return self.begin_capture(table.tensors); });
          },
          "table"_a)
      .def(
          "release",
          [](Checkpointer& self, std::uint32_t guard, const std::vector<StreamForm>& streams) {
            self.release(guard, streams_of(streams));
          },
          "guard"_a, "streams"_a = no_streams, nb::call_guard<nb::gil_scoped_release>())
      .def("discard_capture", &Checkpointer::discard_capture,
           nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_engine(nb::module_& module) {
  const std::vector<StreamForm> no_streams;
  module.def("check_devices", [] { without_gil([] { return check_devices(); }); });
  bind_handle(module);
  nb::class_<Table>(module, "Table")
      .def(nb::init<std::vector<Form>>(), "forms"_a)
      .def("place", &Table::place, "places"_a);
  nb::class_<Checkpointer> engine(module, "Engine");
  bind_agreement(engine);
  bind_capture(engine);
  bind_restoring(engine);
  bind_tiers(module, engine);
  engine
      .def(
          "__init__",
          [](Checkpointer* self, const std::filesystem::path& path,
             std::optional<std::size_t> keep_last, std::optional<std::uint64_t> keep_every,
             std::optional<BestForm> keep_best,
             std::optional<std::pair<std::string, std::uint64_t>> parent,
             const std::string& on_busy, double busy_wait_max_seconds, const std::string& profile,
             std::optional<std::size_t> arena_bytes_max, bool statistics, bool reuse_unchanged,
             std::uint64_t reuse_bytes_min, nb::object ranks, double commit_wait_max_seconds,
             std::uint32_t audit_saves, bool read_only, const std::vector<TierForm>& tiers,
             std::optional<std::uint64_t> bytes_max, double drain_wait_max_seconds,
             std::optional<AgentForm> agent, std::optional<NodesForm> nodes) {
            new (self) Checkpointer(open_engine(
                path, keep_last, keep_every, keep_best, std::move(parent), on_busy,
                busy_wait_max_seconds, profile, arena_bytes_max, statistics, reuse_unchanged,
                reuse_bytes_min, std::move(ranks), commit_wait_max_seconds, audit_saves, read_only,
                tiers, bytes_max, drain_wait_max_seconds, std::move(agent), std::move(nodes)));
          },
          "path"_a, nb::kw_only(), "keep_last"_a = nb::none(), "keep_every"_a = nb::none(),
          "keep_best"_a = nb::none(), "parent"_a = nb::none(), "on_busy"_a = "block",
          "busy_wait_max_seconds"_a = 600.0, "profile"_a = "auto", "arena_bytes_max"_a = nb::none(),
          "statistics"_a = false, "reuse_unchanged"_a = true,
          "reuse_bytes_min"_a = Options().reuse_bytes_min, "ranks"_a = nb::none(),
          "commit_wait_max_seconds"_a = 600.0, "audit_saves"_a = 100, "read_only"_a = false,
          "tiers"_a = std::vector<TierForm>(), "bytes_max"_a = nb::none(),
          "drain_wait_max_seconds"_a = 600.0, "agent"_a = nb::none(), "nodes"_a = nb::none())
      .def("prewarm", &prewarm, "table"_a, "objects"_a, "streams"_a = no_streams)
      .def("save", &lend_and_save, "step"_a, "table"_a, "objects"_a, "metrics"_a, "tags"_a,
           "environment"_a, "confirm"_a = false, "streams"_a = no_streams)
      .def("wait", &Checkpointer::wait, nb::call_guard<nb::gil_scoped_release>())
      .def("close", [](Checkpointer& self) { without_gil([&self] { return self.close(); }); });
}

}  // namespace deepfreeze::python
