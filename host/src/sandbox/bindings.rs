//! What wasmtime makes of the world in `wit/`.

wasmtime::component::bindgen!({
    path: "wit",
    world: "proxy",
    with: { "consort:proxy/json.value": super::json::Value },
    imports: { default: trappable },
    exports: { default: async },
});
