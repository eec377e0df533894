package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const lookEvery = 100 * time.Millisecond

// keepRegistered serves the pool and registers it, and does so again for each new kubelet: a kubelet that starts
// empties the folder, so our own socket has to be made anew as well.
func keepRegistered(p *pool, folder string) {
	known := ""
	for range time.Tick(lookEvery) {
		kubelet := identity(filepath.Join(folder, "kubelet.sock"))
		if kubelet == "" || kubelet == known {
			continue
		}
		if err := p.serve(folder); err != nil {
			log.Printf("%s: %v", p.name, err)
			continue
		}
		if err := p.register(folder); err != nil {
			log.Printf("%s: %v", p.name, err)
			continue
		}
		known = kubelet
		log.Printf("%s: registered %d devices", p.name, len(p.devices))
	}
}

// identity tells one socket file from the next of the same name; empty when there is none.
func identity(path string) string {
	found, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(found.Sys().(*syscall.Stat_t).Ino, found.ModTime().UnixNano())
}

func (p *pool) serve(folder string) error {
	p.stop()
	path := filepath.Join(folder, p.socketName())
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	p.lock.Lock()
	p.server = server
	p.lock.Unlock()
	go func() {
		if err := server.Serve(listener); err != nil {
			log.Printf("%s: %v", p.name, err)
		}
	}()
	return nil
}

func (p *pool) register(folder string) error {
	where := "unix://" + filepath.Join(folder, "kubelet.sock")
	kubelet, err := grpc.NewClient(where, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: p.socketName(), ResourceName: p.name}
	_, err = api.NewRegistrationClient(kubelet).Register(ctx, request)
	return err
}

func (p *pool) stop() {
	p.lock.Lock()
	server := p.server
	p.server = nil
	p.lock.Unlock()
	if server != nil {
		server.Stop()
	}
}
