#include "platform.h"

#include <simgrid/s4u.hpp>
#include <utility>
#include <vector>

namespace deepfreeze::simulation {
namespace {

namespace s4u = simgrid::s4u;

struct Node {
  s4u::Host* memory = nullptr;  // its speed: the bytes that are copied in a second
  s4u::Host* cores = nullptr;   // its speed: the bytes that a core serialises in a second
  s4u::Disk* disk = nullptr;
};

// Plain sharing of bandwidth. The corrections of SimGrid's default model are those of TCP.
std::unique_ptr<s4u::Engine> make_engine() {
  std::vector<std::string> words{"deepfreeze_simulate",           "--cfg=network/model:CM02",
                                 "--cfg=network/TCP-gamma:0",     "--cfg=network/crosstraffic:0",
                                 "--cfg=contexts/stack-size:128", "--log=root.thres:error"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  auto count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  return std::make_unique<s4u::Engine>(&count, arguments.data());
}

// A host behind a link of its own, half of whose way is half of the latency.
s4u::Host* add_host(s4u::NetZone* zone, const std::string& name, double speed, double bandwidth,
                    double latency_seconds) {
  s4u::Host* host = zone->create_host(name, speed);
  const s4u::Link* link = zone->create_split_duplex_link(name + "-link", bandwidth)
                              ->set_latency(latency_seconds / 2)
                              ->seal();
  zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                  {{link, s4u::LinkInRoute::Direction::UP}}, true);
  return host;
}

Node add_node(s4u::NetZone* zone, const std::string& name, const Machine& machine) {
  const double bandwidth = std::min(machine.network.bandwidth, machine.parallel.client_bandwidth);
  Node node;
  node.memory =
      add_host(zone, name, machine.memory_bandwidth, bandwidth, machine.network.latency_seconds);
  node.disk = node.memory->create_disk(name + "-disk", machine.local.read_bandwidth,
                                       machine.local.write_bandwidth);
  node.disk->seal();
  if (machine.serialize_bandwidth > 0) {
    node.cores = zone->create_host(name + "-cores", machine.serialize_bandwidth);
    node.cores->set_core_count(static_cast<int>(machine.cores_per_node));
  }
  return node;
}

}  // namespace

struct Platform::Parts {
  std::unique_ptr<s4u::Engine> engine = make_engine();
  double start_seconds = s4u::Engine::get_clock();  // an earlier engine's clock goes on
  std::vector<Node> nodes;
  std::vector<s4u::Host*> servers;
  s4u::MutexPtr metadata_server = s4u::Mutex::create();
};

Platform::Platform(const Scenario& scenario, Ledger& ledger)
    : scenario_(scenario), ledger_(ledger), parts_(std::make_unique<Parts>()) {
  const Machine& machine = scenario.machine;
  s4u::NetZone* zone = s4u::create_star_zone("machine");
  for (std::uint64_t i = 0; i < machine.nodes; ++i) {
    parts_->nodes.push_back(add_node(zone, "node-" + std::to_string(i), machine));
  }
  for (std::uint64_t i = 0; i < machine.parallel.servers; ++i) {
    parts_->servers.push_back(add_host(zone, "server-" + std::to_string(i), 1,
                                       machine.parallel.server_bandwidth,
                                       machine.network.latency_seconds));
  }
  zone->seal();
}

Platform::~Platform() = default;

void Platform::start(const std::string& name, std::uint64_t rank, std::function<void()> work) {
  const Node& node = parts_->nodes[rank / scenario_.machine.ranks_per_node];
  s4u::Actor::create(name, node.memory, std::move(work));
}

void Platform::run() { parts_->engine->run(); }

double Platform::now() const { return s4u::Engine::get_clock() - parts_->start_seconds; }

void Platform::wait(double seconds) {
  if (seconds > 0) s4u::this_actor::sleep_for(seconds);
}

void Platform::copy(std::uint64_t rank, std::uint64_t bytes) {
  const Node& node = parts_->nodes[rank / scenario_.machine.ranks_per_node];
  const auto exec = s4u::Exec::init();
  exec->set_flops_amount(static_cast<double>(bytes));
  exec->set_bound(scenario_.machine.copy_bandwidth);
  exec->set_host(node.memory);
  exec->wait();
}

void Platform::serialize(std::uint64_t rank, std::uint64_t bytes) {
  const Node& node = parts_->nodes[rank / scenario_.machine.ranks_per_node];
  if (node.cores == nullptr) return;
  const auto exec = s4u::Exec::init();
  exec->set_flops_amount(static_cast<double>(bytes));
  exec->set_host(node.cores);
  exec->wait();
}

void Platform::write(Place place, std::uint64_t rank, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (place == Place::kParallel) return stream(rank, bytes);
  parts_->nodes[rank / scenario_.machine.ranks_per_node].disk->write(bytes);
}

void Platform::read_local(std::uint64_t rank, std::uint64_t bytes) {
  if (bytes > 0) parts_->nodes[rank / scenario_.machine.ranks_per_node].disk->read(bytes);
}

// A file's stripes go to as many servers at once; files begin at one server after another.
void Platform::stream(std::uint64_t rank, std::uint64_t bytes) {
  const std::uint64_t stripes = scenario_.machine.parallel.stripes;
  s4u::Host* node = parts_->nodes[rank / scenario_.machine.ranks_per_node].memory;
  const double start = now();
  std::vector<s4u::CommPtr> stripes_in_flight;
  for (std::uint64_t i = 0; i < stripes; ++i) {
    s4u::Host* server = parts_->servers[(rank * stripes + i) % parts_->servers.size()];
    const std::uint64_t stripe_bytes = bytes * (i + 1) / stripes - bytes * i / stripes;
    stripes_in_flight.push_back(s4u::Comm::sendto_async(node, server, stripe_bytes));
  }
  s4u::Comm::wait_all(stripes_in_flight);
  ledger_.transferred({.start_seconds = start, .end_seconds = now(), .bytes = bytes});
}

void Platform::names(Place place, NameOperations operations) {
  if (place == Place::kLocal) {
    const LocalStorage& local = scenario_.machine.local;
    return wait(operations.creates * local.create_seconds +
                operations.fsyncs * local.fsync_seconds);
  }
  const ParallelStorage& parallel = scenario_.machine.parallel;
  parts_->metadata_server->lock();
  wait(operations.creates * parallel.create_seconds);
  parts_->metadata_server->unlock();
  wait(operations.fsyncs * parallel.fsync_seconds);
}

}  // namespace deepfreeze::simulation
