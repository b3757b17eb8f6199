//! Operations: each is a route, and a part of the OpenAPI document. A service at rest has no memory for that document, so
//! its parts are functions that the first request for it calls.

use std::sync::Arc;

use axum::{
    Extension, Router,
    handler::Handler,
    routing::{MethodFilter, MethodRouter},
};
use utoipa::{
    __dev::SchemaReferences,
    Path,
    openapi::{HttpMethod, OpenApi, Paths},
};

use super::Service;

/// Adds an operation to a document.
type Description = fn(&mut OpenApi);

/// Operations with their routes.
#[derive(Debug, Default)]
pub(super) struct Operations {
    router: Router<Arc<Service>>,
    descriptions: Vec<Description>,
}

impl Operations {
    /// Adds an operation: what `utoipa::path` has made of a handler, and that handler.
    pub(super) fn with<P, H, T>(mut self, _description: P, handler: H) -> Self
    where
        P: Path + SchemaReferences,
        H: Handler<T, Arc<Service>>,
        T: 'static,
    {
        let methods = P::methods().into_iter().map(filter);
        let methods = methods.fold(MethodRouter::new(), |router, method| router.on(method, handler.clone()));
        self.router = self.router.route(&P::path(), methods);
        self.descriptions.push(describe::<P>);
        self
    }

    pub(super) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.descriptions.extend(other.descriptions);
        self
    }

    /// Gives the handlers of these operations a value that is theirs.
    pub(super) fn with_extension(mut self, value: impl Clone + Send + Sync + 'static) -> Self {
        self.router = self.router.layer(Extension(value));
        self
    }

    /// Routes, and what adds each operation to a document.
    pub(super) fn into_parts(self) -> (Router<Arc<Service>>, Vec<Description>) {
        (self.router, self.descriptions)
    }
}

fn describe<P: Path + SchemaReferences>(document: &mut OpenApi) {
    let mut paths = Paths::new();
    paths.add_path_operation(P::path(), P::methods(), P::operation());
    document.paths.merge(paths);
    let mut schemas = Vec::new();
    P::schemas(&mut schemas);
    document.components.get_or_insert_default().schemas.extend(schemas);
}

fn filter(method: HttpMethod) -> MethodFilter {
    match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Options => MethodFilter::OPTIONS,
        HttpMethod::Head => MethodFilter::HEAD,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Trace => MethodFilter::TRACE,
    }
}
