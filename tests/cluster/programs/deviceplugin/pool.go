package main

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// refusal is what the next Allocate of any resource answers; empty: it is served.
type refusal struct {
	lock sync.Mutex
	text string
}

func (r *refusal) set(text string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.text = text
}

func (r *refusal) take() string {
	r.lock.Lock()
	defer r.lock.Unlock()
	text := r.text
	r.text = ""
	return text
}

// pool is the devices of one resource, and the plugin that offers them.
type pool struct {
	api.UnimplementedDevicePluginServer
	name    string
	refusal *refusal

	lock    sync.Mutex
	devices []string
	lost    map[string]bool
	changed chan struct{}
	server  *grpc.Server
}

func newPool(name string, count int, refusal *refusal) *pool {
	made := &pool{name: name, refusal: refusal, lost: map[string]bool{}, changed: make(chan struct{})}
	for index := range count {
		made.devices = append(made.devices, deviceID(name, index))
	}
	return made
}

// deviceID is the same in every run: a UUID made of the resource's name and the number, in the driver's notation.
func deviceID(name string, index int) string {
	sum := sha1.Sum(fmt.Appendf(nil, "%s/%d", name, index))
	kind := "GPU"
	if strings.Contains(name, "/mig-") {
		kind = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

func (p *pool) socketName() string {
	return "tests-" + strings.NewReplacer("/", "-", ".", "-").Replace(p.name) + ".sock"
}

// setHealth loses (or gives back) the named devices, or, without names, the first count that are not yet so.
func (p *pool) setHealth(lost bool, count int, names []string) ([]string, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if len(names) == 0 {
		for _, id := range p.devices {
			if p.lost[id] != lost && len(names) < count {
				names = append(names, id)
			}
		}
		if len(names) < count {
			return nil, fmt.Errorf("%s has only %d such devices, not %d", p.name, len(names), count)
		}
	}
	for _, id := range names {
		if !slices.Contains(p.devices, id) {
			return nil, fmt.Errorf("%s has no device %s", p.name, id)
		}
	}
	for _, id := range names {
		p.lost[id] = lost
	}
	close(p.changed)
	p.changed = make(chan struct{})
	return names, nil
}

// state is the devices as the kubelet is to know them, and a channel that closes when that changes.
func (p *pool) state() ([]*api.Device, chan struct{}) {
	p.lock.Lock()
	defer p.lock.Unlock()
	var devices []*api.Device
	for _, id := range p.devices {
		health := api.Healthy
		if p.lost[id] {
			health = api.Unhealthy
		}
		devices = append(devices, &api.Device{ID: id, Health: health})
	}
	return devices, p.changed
}

func (p *pool) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *pool) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		devices, changed := p.state()
		if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (p *pool) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	if text := p.refusal.take(); text != "" {
		return nil, errors.New(text)
	}
	answer := &api.AllocateResponse{}
	for _, container := range asked.ContainerRequests {
		visible := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: visible})
	}
	return answer, nil
}
