package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
)

// order is one line of JSON on the control socket; the answer is one line too.
type order struct {
	Do       string   `json:"do"` // "lose", "give_back", "refuse_next" or "show"
	Resource string   `json:"resource"`
	Count    int      `json:"count"`
	Devices  []string `json:"devices"`
	Text     string   `json:"text"`
}

type reply struct {
	Error   string                     `json:"error,omitempty"`
	Devices []string                   `json:"devices,omitempty"` // those an order changed
	Lost    map[string]map[string]bool `json:"lost,omitempty"`    // resource -> device -> lost
}

func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return net.Listen("unix", path)
}

func answer(listener net.Listener, pools map[string]*pool, refusal *refusal) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			defer connection.Close()
			var asked order
			if err := json.NewDecoder(connection).Decode(&asked); err != nil {
				log.Printf("an order that cannot be read: %v", err)
				return
			}
			if err := json.NewEncoder(connection).Encode(carryOut(asked, pools, refusal)); err != nil {
				log.Printf("an answer that cannot be given: %v", err)
			}
		}()
	}
}

func carryOut(asked order, pools map[string]*pool, refusal *refusal) reply {
	switch asked.Do {
	case "refuse_next":
		refusal.set(asked.Text)
		return reply{}
	case "show":
		shown := map[string]map[string]bool{}
		for name, one := range pools {
			shown[name] = map[string]bool{}
			devices, _ := one.state()
			for _, device := range devices {
				shown[name][device.ID] = device.Health != "Healthy"
			}
		}
		return reply{Lost: shown}
	case "lose", "give_back":
		found := pools[asked.Resource]
		if found == nil {
			return reply{Error: fmt.Sprintf("no resource %s here", asked.Resource)}
		}
		changed, err := found.setHealth(asked.Do == "lose", asked.Count, asked.Devices)
		if err != nil {
			return reply{Error: err.Error()}
		}
		return reply{Devices: changed}
	}
	return reply{Error: fmt.Sprintf("nobody here can %q", asked.Do)}
}
