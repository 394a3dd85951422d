#include "platform.h"

#include <simgrid/s4u.hpp>
#include <utility>
#include <vector>

namespace deepfreeze::simulation {
namespace {

namespace s4u = simgrid::s4u;

struct Node {
  s4u::Host* client = nullptr;  // of the parallel file system: behind a link of its own, too
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

using Links = std::vector<s4u::LinkInRoute>;

s4u::Host* add_host(s4u::NetZone* zone, const std::string& name, double speed, const Links& links) {
  s4u::Host* host = zone->create_host(name, speed);
  zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, links, true);
  return host;
}

// Half of the way between two hosts: half of the latency.
s4u::LinkInRoute add_link(s4u::NetZone* zone, const std::string& name, double bandwidth,
                          double latency_seconds) {
  const s4u::Link* link = zone->create_split_duplex_link(name + "-link", bandwidth)
                              ->set_latency(latency_seconds / 2)
                              ->seal();
  return {link, s4u::LinkInRoute::Direction::UP};
}

Node add_node(s4u::NetZone* zone, const std::string& name, const Machine& machine) {
  const Network& network = machine.network;
  const auto interface = add_link(zone, name, network.bandwidth, network.latency_seconds);
  const auto mount = add_link(zone, name + "-mount", machine.parallel.client_bandwidth, 0);
  Node node;
  node.memory = add_host(zone, name, machine.memory_bandwidth, {interface});
  node.client = add_host(zone, name + "-client", 1, {mount, interface});
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
    const std::string name = "server-" + std::to_string(i);
    const auto link =
        add_link(zone, name, machine.parallel.server_bandwidth, machine.network.latency_seconds);
    parts_->servers.push_back(add_host(zone, name, 1, {link}));
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
std::vector<Source> Platform::stripes(std::uint64_t rank, std::uint64_t bytes) const {
  const std::uint64_t count = scenario_.machine.parallel.stripes;
  std::vector<Source> found;
  for (std::uint64_t i = 0; i < count; ++i) {
    found.push_back({.place = (rank * count + i) % parts_->servers.size(),
                     .bytes = bytes * (i + 1) / count - bytes * i / count});
  }
  return found;
}

void Platform::stream(std::uint64_t rank, std::uint64_t bytes) {
  s4u::Host* client = parts_->nodes[rank / scenario_.machine.ranks_per_node].client;
  const double start = now();
  std::vector<s4u::CommPtr> in_flight;
  for (const Source& stripe : stripes(rank, bytes)) {
    in_flight.push_back(
        s4u::Comm::sendto_async(client, parts_->servers[stripe.place], stripe.bytes));
  }
  s4u::Comm::wait_all(in_flight);
  ledger_.transferred({.start_seconds = start, .end_seconds = now(), .bytes = bytes});
}

void Platform::fetch(std::uint64_t node, const Reads& reads, std::uint64_t stored_bytes) {
  const Node& own = parts_->nodes[node];
  std::vector<s4u::CommPtr> in_flight;
  std::vector<s4u::IoPtr> on_disks;
  const auto send = [&](s4u::Host* from, s4u::Host* to, std::uint64_t bytes) {
    if (bytes > 0) in_flight.push_back(s4u::Comm::sendto_async(from, to, bytes));
  };
  for (const Source& source : reads.disks) {
    const Node& other = parts_->nodes[source.place];
    if (source.bytes == 0) continue;
    on_disks.push_back(other.disk->read_async(static_cast<sg_size_t>(source.bytes)));
    if (source.place != node) send(other.memory, own.memory, source.bytes);
  }
  for (const Source& source : reads.memories) {
    send(parts_->nodes[source.place].memory, own.memory, source.bytes);
  }
  for (const Source& source : reads.servers) {
    send(parts_->servers[source.place], own.client, source.bytes);
  }
  if (stored_bytes > 0) on_disks.push_back(own.disk->write_async(stored_bytes));
  s4u::Comm::wait_all(in_flight);
  for (const s4u::IoPtr& one : on_disks) one->wait();
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
